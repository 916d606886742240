/** The list of runs at the side of every view. */

import { chosenRun, colorsOf, comparedNames, isHidden, listOf, metadataKeys, newestFirst, runLink, star, tickedRuns, ticking } from "./choice.js";
import { dashOf, lineColor } from "./colors.js";
import { MOST_ROWS, fill, h, note, quiet, s, select, textbox, toolbar } from "./dom.js";
import { contains, count, date, grouped, inOrder, savedSteps, textOf } from "./format.js";
import { REPLACE, go } from "./state.js";

/** Draw the list. @type {DrawSide} */
export function drawSide(side, info, now, view, ofOne) {
  side.hidden = info.runs.length < 2;
  if (side.hidden) return;
  const ticked = tickedRuns(info, now);
  const names = new Set(ticked.map(({ name }) => name));
  const chosen = ofOne ? [chosenRun(info, now).name] : view === "compare" ? comparedNames(info, now) : [];
  const pinned = new Set(listOf(now.pinned));
  const hidden = info.runs.filter((run) => isHidden(run, now)).length;
  const listed = listedRuns(info, now).sort((a, b) => Number(pinned.has(b.name)) - Number(pinned.has(a.name)));
  const keys = metadataKeys(info.runs).map(({ key }) => key);
  const color = colorsOf(info, now);
  const list = h("ul");
  for (const [title, runs] of groupsOf(listed.slice(0, MOST_ROWS), now)) {
    if (title) list.append(h("li", { class: "group" }, title));
    for (const run of runs) list.append(row(run));
  }
  const open = side.querySelector("details")?.open ?? innerWidth > 800;
  fill(side, h("details", { open },
    h("summary", {}, h("b", {}, "Runs"), " ", quiet(ofOne ? `${chosen[0]} is shown` : chosen.length ? `${chosen.join(" and ")} are compared` : `${count(ticked.length)} of ${count(info.runs.length)} are shown`)),
    textbox("search runs", now.rq ?? "", (rq) => go({ rq }, REPLACE), "name, tag, note, metadata"),
    toolbar(
      h("button", { class: "plain", title: "Tick all runs of this list", onclick: () => go({ runs: ticking(info, [...ticked, ...listed].map(({ name }) => name)) }) }, "all"),
      h("button", { class: "plain", onclick: () => go({ runs: [] }) }, "none"),
      now.runs !== undefined && h("button", { class: "plain", title: "Tick the newest runs", onclick: () => go({ runs: null }) }, "newest"),
      keys.length > 0 && select("group by", [["", "not grouped"], ...keys.map((key) => [key, `by ${key}`])], now.group ?? "", (group) => go({ group }),
        "Runs with the same value of this metadata stand together and have one color.")),
    list,
    listed.length > MOST_ROWS && note(`and ${count(listed.length - MOST_ROWS)} more: search for them`),
    !listed.length && note("No run matches."),
    (hidden > 0 || now.archived) && note(now.archived ? "with archived runs " : `${count(hidden)} hidden or archived `,
      h("button", { class: "plain", onclick: () => go({ hidden: null, archived: now.archived ? null : "1" }) }, now.archived ? "leave out" : "show"))));

  /** @param {Run} run */
  function row(run) {
    const on = names.has(run.name);
    const isChosen = chosen.includes(run.name);
    const box = h("input", { type: "checkbox", checked: on, "aria-label": `show ${run.name}`,
      onchange: () => go({ runs: ticking(info, [...names].filter((name) => name !== run.name).concat(on ? [] : run.name)) }) });
    return h("li", { class: isChosen && "chosen", title: [run.path, `started ${date(run.started)}, ${savedSteps(run)}`, run.tags.join(", "), run.note].filter(Boolean).join("\n") },
      box, stroke(color(run.name)),
      h("a", { class: "name", href: runLink(run.name, ofOne ? now.view : "overview"), "aria-current": isChosen && "true" }, run.name),
      ...marksOf(run),
      star("pinned", run.name, now, run.name));
  }
}

/** Return what is said of a run next to its name. @param {Run} run */
export const marksOf = (run) => [
  !run.ended && h("span", { class: "status live", title: "It may be running." }),
  run.damaged.length > 0 && h("span", { class: "bad", title: run.damaged.join("\n") }, "damaged"),
  run.findings > 0 && h("span", { class: "bad", title: `${count(run.findings)} findings of rules` }, "!"),
  ...run.tags.map((tag) => h("span", { class: "tag", title: run.note }, tag))];

/** Return the runs that lists show, the newest first. @param {Info} info @param {State} now */
export const listedRuns = (info, now) => newestFirst(info).filter((run) => !isHidden(run, now) && contains(`${run.name} ${JSON.stringify([run.metadata, run.tags])} ${run.note}`, now.rq));

/** Return runs in the groups that the state chooses. @param {Run[]} runs @param {State} now @returns {[string, Run[]][]} */
export function groupsOf(runs, now) {
  if (!now.group) return [["", runs]];
  const valueOf = (/** @type {Run} */ run) => run.metadata[now.group];
  return [...grouped(runs, (run) => JSON.stringify(valueOf(run)) ?? "").values()].map((members) => ({ members, value: textOf(valueOf(members[0])) })).sort((a, b) => inOrder(a.value, b.value))
    .map(({ members, value }) => [`${now.group} ${value === "" ? "is missing" : `= ${value}`} (${count(members.length)})`, members]);
}

/** Return a short line as a run's curves have it. @param {number} color */
export function stroke(color) {
  return s("svg", { class: "stroke", viewBox: "0 0 18 6" },
    s("line", { x1: 0, x2: 18, y1: 3, y2: 3, stroke: lineColor(color), "stroke-width": 3, "stroke-dasharray": dashOf(color).map((each) => each / 2).join(" ") }));
}
