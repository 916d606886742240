/** The shell around the views: which run, which view, whether the run grows, and the keyboard. */

import { listen, loadInfo } from "./api.js";
import { chosenRun, isStrange } from "./choice.js";
import { fill, h, select } from "./dom.js";
import { count, counted, printable } from "./format.js";
import { tooltip } from "./tooltip.js";
import { announce, go, link, onState, state } from "./state.js";
import { availability } from "./views/availability.js";
import { difference } from "./views/difference.js";
import { findings } from "./views/findings.js";
import { overview } from "./views/overview.js";
import { runs } from "./views/runs.js";
import { scalars } from "./views/scalars.js";
import { sql } from "./views/sql.js";
import { tensor } from "./views/tensor.js";

/**
 * What a view gets from the page. `fail` shows an error in place of the view.
 * @typedef {object} Page
 * @property {Info} info
 * @property {(error: unknown) => void} fail
 */
/**
 * @typedef {object} View
 * @property {(state: State) => Promise<void> | void} show
 * @property {() => Promise<void> | void} [grow] a run has new steps; without it, show is called
 */
/** @typedef {(root: HTMLElement, page: Page) => View} ViewMaker */

/** @type {{key: string, title: string, make: ViewMaker}[]} */
const VIEWS = [
  { key: "overview", title: "Overview", make: overview },
  { key: "tensor", title: "Tensor", make: tensor },
  { key: "scalars", title: "Scalars", make: scalars },
  { key: "runs", title: "Runs", make: runs },
  { key: "difference", title: "Difference", make: difference },
  { key: "availability", title: "Availability", make: availability },
  { key: "findings", title: "Findings", make: findings },
  { key: "sql", title: "SQL", make: sql },
];

const OF_ONE_RUN = new Set(["overview", "tensor", "availability", "findings", "sql"]);

const bar = /** @type {HTMLElement} */ (document.getElementById("bar"));
const main = /** @type {HTMLElement} */ (document.getElementById("view"));
const help = /** @type {HTMLDialogElement} */ (document.getElementById("help"));

/** @type {Page} */
let page;
/** @type {{key: string, view: View} | null} */
let shown = null;
let connected = false;

async function start() {
  applyTheme();
  let info;
  try {
    info = await loadInfo(state().run);
  } catch (error) {
    fail(error);
    return;
  }
  page = { info, fail };
  onState(() => void showState());
  addEventListener("keydown", keyDown);
  listen({ grown: () => void grown(), connected: (now) => { connected = now; drawBar(); } });
  announce();
}

/** Show what the URL says. */
async function showState() {
  applyTheme();
  const now = state();
  const { key, make } = VIEWS.find((view) => view.key === now.view) ?? VIEWS[0];
  drawBar();
  if (OF_ONE_RUN.has(key) && (isStrange(page.info, now) || !chosenRun(page.info, now).opened)) {
    const { hash } = location;
    await refresh();
    if (location.hash !== hash) return; // another state shows itself
    if (isStrange(page.info, now)) {
      fail(`The run ${now.run} is not here: it was deleted, or the link is of another page. Choose one of the runs above.`);
      return;
    }
  }
  if (shown?.key !== key) {
    tooltip(null);
    fill(main);
    main.scrollTop = 0;
    shown = { key, view: make(main, page) };
  }
  document.title = `${VIEWS.find((view) => view.key === key)?.title} · ${printable(chosenRun(page.info, now).name)} · tensortrial`;
  await attempt(() => shown?.view.show(now));
}

/** Load what the runs are now. */
async function refresh() {
  try {
    page.info = await loadInfo(state().run);
  } catch {
    return; // the server has gone; the bar says so
  }
  drawBar();
}

/** Show new steps. */
async function grown() {
  await refresh();
  const view = shown?.view;
  if (shown && OF_ONE_RUN.has(shown.key) && isStrange(page.info, state())) await showState();
  else if (view) await attempt(() => (view.grow ? view.grow() : view.show(state())));
}

/** @type {(() => Promise<void> | void | undefined) | null} */
let waiting = null;
let busy = false;

/**
 * Let the view show something after what it shows now; of several that wait, only the last counts.
 * @param {() => Promise<void> | void | undefined} action
 */
async function attempt(action) {
  waiting = action;
  if (busy) return;
  busy = true;
  while (waiting) {
    const next = waiting;
    waiting = null;
    try {
      await next();
      main.dataset.ready = String(Number(main.dataset.ready ?? 0) + 1);
    } catch (error) {
      if (!waiting) fail(error);
    }
  }
  busy = false;
}

/**
 * Show an error in place of the view.
 * @param {unknown} error
 */
function fail(error) {
  shown = null;
  const text = error instanceof Error ? error.message : String(error);
  fill(main, h("div", { class: "error", role: "alert" }, printable(text).replaceAll("\\u000a", "\n")),
    h("p", { class: "tools" }, h("button", { onclick: () => location.reload() }, "Try again"), h("a", { href: "#" }, "Start over")));
}

function drawBar() {
  if (!page) return;
  const now = state();
  const run = chosenRun(page.info, now);
  const view = VIEWS.find((each) => each.key === now.view) ?? VIEWS[0];
  const status = page.info.frozen ? h("span", { class: "status" }, "report")
    : !connected ? h("span", { class: "status warn" }, "not connected")
    : run.ended ? h("span", { class: "status", title: "The job has ended; nothing more will come." }, "ended")
    : h("span", { class: "status live", title: "The job may be running: new steps appear by themselves." }, "live");
  const chooser = page.info.runs.length > 1
    ? select("run", [...(isStrange(page.info, now) ? [{ name: now.run }] : []), ...page.info.runs].map(({ name }) => ({ value: name, text: printable(name) })), now.run ?? run.name,
        (name) => go({ run: name, name: null, step: null, from: null, to: null, worker: null, mode: null }))
    : h("span", { class: "name run", title: printable(run.path) }, printable(run.name));
  fill(bar,
    h("span", { class: "brand" }, "tensortrial"), chooser, status,
    h("span", { class: "quiet" }, counted(run.steps, "step"), run.workers.length > 1 && `, ${counted(run.workers.length, "worker")}`),
    h("span", { class: "spring" }),
    h("button", { title: "Light or dark", "aria-label": "Light or dark", onclick: switchTheme }, "◐"),
    h("button", { title: "Keyboard (?)", onclick: showHelp }, "?"),
    h("nav", { "aria-label": "Views" }, ...VIEWS.map(({ key, title }, i) =>
      h("a", { href: link({ view: key === "overview" ? null : key }), "aria-current": key === view.key && "page", title: `${title} (${i + 1})` },
        title, key === "findings" && run.findings > 0 && h("span", {}, " ", h("span", { class: "badge" }, count(run.findings)))))));
}

function applyTheme() {
  const { theme } = state();
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function switchTheme() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  go({ theme: dark ? "light" : "dark" }, { replace: true });
}

/** @param {KeyboardEvent} event */
function keyDown(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") target.blur();
  if (["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName)) return;
  const view = VIEWS[Number(event.key) - 1];
  if (view) go({ view: view.key === "overview" ? null : view.key });
  else if (event.key === "?") showHelp();
  else if (event.key === "d") switchTheme();
  else if (event.key === "/") {
    const box = main.querySelector('input[type="search"]');
    if (box instanceof HTMLElement) box.focus();
  } else if (event.key === "g") focusMap();
  else return;
  event.preventDefault();
}

function focusMap() {
  const map = main.querySelector("canvas.heatmap");
  if (map instanceof HTMLElement) map.focus();
}

function showHelp() {
  const keys = [
    ["1 … 8", "the views, from left to right"],
    ["g", "go to the heat map; then:"],
    ["← → ↑ ↓ Home End", "move from cell to cell, to the first and the last row"],
    ["Enter", "open the tensor at that step; fold or unfold a module"],
    ["+ − 0", "zoom in, zoom out, show all"],
    ["/", "search"],
    ["d", "light or dark"],
    ["?", "this list"],
  ];
  fill(help, h("h2", {}, "Keyboard and pointer"),
    h("dl", { class: "keys" }, ...keys.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("p", { class: "quiet" }, "On the heat map: wheel zooms steps, Shift and wheel zooms rows, dragging moves, double-click shows all, a click opens."),
    h("p", { class: "quiet" }, "The address of the page holds all that you have chosen: copy it to show the same to somebody with access to this server."),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
  help.showModal();
}

void start();
