/** The shell around the views: bar, list, keyboard, new data. */

import { listen, loadInfo } from "./api.js";
import { chosenRun, isStrange, listOf } from "./choice.js";
import { isDark } from "./colors.js";
import { failure, fill, h, keepFocus, quiet } from "./dom.js";
import { count, counted, printable, date, savedSteps } from "./format.js";
import { drawSide } from "./side.js";
import { tooltip } from "./tooltip.js";
import { REPLACE, go, link, state } from "./state.js";
import { availability } from "./views/availability.js";
import { compare } from "./views/compare.js";
import { findings } from "./views/findings.js";
import { overview } from "./views/overview.js";
import { runs } from "./views/runs.js";
import { scalars } from "./views/scalars.js";
import { sql } from "./views/sql.js";
import { tensor } from "./views/tensor.js";

const VIEWS = Object.entries({ Runs: runs, Overview: overview, Scalars: scalars, Tensor: tensor, Compare: compare, Findings: findings, SQL: sql, Workers: availability })
  .map(([title, make]) => ({ key: make.name, title, make }));

const FEW_TENSORS = 10;
const OF_ONE_RUN = new Set(["overview", "tensor", "availability", "findings"]);

const [bar, main, side, theme, keys] = ["state", "view", "runs", "theme", "keys"].map((id) => /** @type {HTMLElement} */ (document.getElementById(id)));
const help = /** @type {HTMLDialogElement} */ (document.getElementById("help"));

const page = /** @type {Page} */ ({ fail });
/** @type {{key: string, view: View} | null} */
let shown = null;
let connected = false;
let lost = false; // what is known of the runs
let missed = false; // that runs grew during the first request

/** @type {Map<string, typeof VIEWS[0]>} by run */
const firsts = new Map();

/** Return the view that the state names, else the first one, which stays while a run grows. @param {State} now */
function viewOf(now) {
  const named = VIEWS.find(({ key }) => key === now.view);
  if (named) return named;
  if (page.info.runs.length > 1 && !now.run) return VIEWS[0];
  if (page.info.frozen && !now.run) return VIEWS[5];
  const { name, tensors, numbers } = chosenRun(page.info, now);
  const first = firsts.get(name) ?? VIEWS[tensors < Math.min(FEW_TENSORS, numbers) ? 2 : 1];
  if (tensors + numbers) firsts.set(name, first);
  return first;
}

/** Show what the URL says. */
async function showState() {
  applyTheme();
  const now = state();
  const { hash } = location;
  try {
    if (!page.info) await refresh();
    if (missed || lost || isStrange(page.info, now) || (isOfOne(now) && !chosenRun(page.info, now).opened)) await refresh();
  } catch (error) {
    return fail(error);
  }
  if (location.hash !== hash) return; // another state shows itself
  drawBar();
  const { key, title, make } = viewOf(now);
  if (isStrange(page.info, now) && OF_ONE_RUN.has(key)) {
    fail(`The run ${now.run} is not here: it was deleted, or the link is of another page. Choose another one.`);
    return;
  }
  if (shown?.key !== key) {
    tooltip(null);
    fill(main);
    main.scrollTop = 0;
    shown = { key, view: make(main, page) };
  }
  document.title = `${title} · ${isOneShown(key) ? printable(chosenRun(page.info, now).name) : counted(page.info.runs.length, "run")} · tensortrial`;
  await attempt(() => shown?.view.show(now));
}

/** Return whether one run is shown, which the server must have opened. @param {State} now */
const isOfOne = (now) => Boolean(now.run) || OF_ONE_RUN.has(viewOf(now).key);

/** Return whether a view shows one run. @param {string} key */
const isOneShown = (key) => OF_ONE_RUN.has(key) || page.info.runs.length === 1;

async function refresh() {
  const now = state();
  lost = true;
  missed = false;
  page.info = await loadInfo(page.info && isOfOne(now) ? now.run ?? chosenRun(page.info, now).name : now.run);
  lost = false;
  drawBar();
}

async function grown() {
  if (!main.childElementCount) return void (missed = true);
  try {
    await refresh();
  } catch (error) {
    if (!(error instanceof TypeError)) fail(error); // else the server has gone; the bar says so
    return;
  }
  if (!shown || (OF_ONE_RUN.has(shown.key) && isStrange(page.info, state()))) await showState(); // an error may be over
  else {
    const { view } = shown;
    await attempt(() => (view.grow ? view.grow() : view.show(state())));
  }
}

/** @type {Action | null} */
let waiting = null;
let busy = false;

/** Let the view show something after what it shows now; of several, the last. @param {Action} action */
async function attempt(action) {
  waiting = action;
  if (busy) return;
  busy = true;
  while (waiting) {
    const next = waiting;
    waiting = null;
    const refocus = keepFocus(main);
    try {
      await next();
      refocus();
      main.dataset.ready = String(Number(main.dataset.ready ?? 0) + 1);
    } catch (error) {
      if (!waiting) fail(error);
    }
  }
  busy = false;
}

/** Show an error in place of the view. @param {unknown} error */
function fail(error) {
  shown = null;
  fill(main, failure(error),
    h("p", { class: "tools" }, h("button", { onclick: () => location.reload() }, "Try again"), h("a", { href: "#" }, "Start over")));
  drawBar();
}

function drawBar() {
  if (!page.info) return;
  const now = state();
  const { key: current } = viewOf(now);
  const ofOne = isOneShown(current);
  const run = chosenRun(page.info, now);
  const live = ofOne ? !run.ended : page.info.runs.some(({ ended }) => !ended);
  const [word, kind, hint] = page.info.frozen ? ["report", ""] : !connected ? ["not connected", "warn"] : lost ? ["not readable", "warn"]
    : live ? ["running", "live", "The job may be running: new steps appear by themselves."] : ["ended", "", "New runs appear by themselves."];
  const views = VIEWS.filter(({ key }) => key !== "availability" || run.workers.length > 1 || current === key);
  const known = new Set(["", ...page.info.runs.map(({ name }) => name)]);
  const strange = [...new Set([now.run ?? "", ...listOf(now.runs), ...(current === "compare" ? [now.a ?? "", now.b ?? ""] : [])])].filter((name) => !known.has(name));
  fill(bar,
    h("span", { class: "brand" }, "tensortrial"),
    ofOne ? h("span", { class: "name run", title: run.path }, run.name) : h("span", {}, counted(page.info.runs.length, "run")),
    h("span", { class: `status ${kind}`, title: hint }, word),
    ofOne && !lost && quiet(savedSteps(run), run.workers.length > 1 && `, ${counted(run.workers.length, "worker")}`, run.saved !== null && `, ${run.ended ? "until" : "last saved"} ${date(run.saved)}`),
    strange.length > 0 && h("span", { class: "warn", role: "alert" }, `Not here: ${strange.join(", ")}`),
    h("nav", { "aria-label": "Views" }, ...views.map(({ key, title }, i) =>
      h("a", { href: link({ view: key }), "aria-current": key === current && "page", title: `${title} (${i + 1})` },
        title, key === "findings" && run.findings > 0 && ofOne && h("span", {}, " ", h("span", { class: "badge" }, count(run.findings)))))));
  drawSide(side, page.info, now, current, OF_ONE_RUN.has(current));
}

function applyTheme() {
  const { theme } = state();
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function switchTheme() {
  go({ theme: isDark() ? "light" : "dark" }, REPLACE);
}

/** Close the open menus but the one around an element. @param {EventTarget | null} [target] */
function closeMenus(target = null) {
  for (const menu of main.querySelectorAll("details[open]:is(.menu, .chooser)")) if (!menu.contains(/** @type {Node | null} */ (target))) menu.removeAttribute("open");
}

/** @param {KeyboardEvent} event */
function keyDown(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    const menu = target.closest(".menu, .chooser");
    target.blur();
    tooltip(null);
    closeMenus();
    menu?.querySelector("summary")?.focus();
  }
  if (target.matches("select, textarea, input:not([type=checkbox])")) return;
  const view = VIEWS[Number(event.key) - 1];
  if (view) go({ view: view.key });
  else if (event.key === "?") help.showModal();
  else if (event.key === "d") switchTheme();
  else if ("/g".includes(event.key)) /** @type {HTMLElement} */ (main.querySelector(event.key === "g" ? "canvas.heatmap" : 'input[type="search"]') ?? main).focus();
  else return;
  event.preventDefault();
}

listen({ grown, connected: (now) => { connected = now; drawBar(); } });
addEventListener("popstate", showState);
theme.onclick = switchTheme;
keys.onclick = () => help.showModal();
addEventListener("keydown", keyDown);
addEventListener("pointerdown", ({ target }) => closeMenus(target));
void showState();
