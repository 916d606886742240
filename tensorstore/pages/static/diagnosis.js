/** What went wrong in a run, in one sentence or in full. */

import { load } from "./api.js";
import { modeOf, tensorLink } from "./choice.js";
import { fill, h, note } from "./dom.js";
import { count } from "./format.js";
import { link } from "./state.js";

/** Return whether a run is so small that all of it is read unasked. @param {Run} run */
export const isQuick = ({ values }) => values <= 400_000;

/** Show what went wrong: at once in a report or of a small ended run, else by a button. @param {HTMLElement} box @param {Page} page @param {Run} run @param {(run: Run, found: Diagnosis) => Child[]} say */
export function drawDiagnosis(box, page, run, say) {
  const version = `${run.name} ${run.ended && run.saved}`;
  if (box.dataset.version === version) return;
  box.dataset.version = version;
  const show = (/** @type {Child[]} */ ...answer) => { if (box.dataset.version === version) fill(box, ...answer); };
  const ask = () => {
    show(h("div", { class: "diagnosed note quiet", role: "status" }, "Looking for what went wrong …"));
    return load("diagnosis", run.name).then((found) => show(...say(run, found)), (error) => show(!page.info.frozen && note(`Not diagnosed: ${error.message}`)));
  };
  if (page.info.frozen || (run.ended && isQuick(run))) void ask();
  else show(note(h("button", { onclick: ask }, "What went wrong?"), run.ended && " It takes a while for this run."));
}

/** Return a diagnosis as one sentence with links. @param {Run} run @param {Diagnosis} found @param {...Child} before */
export function inOneSentence(run, found, ...before) {
  const first = found.problems.find((each) => !each.note) ?? found.problems[0];
  const more = found.problems.length - 1;
  return [h("div", { class: `diagnosed ${!first ? "well" : first.note ? "remarked" : ""}`, role: "status" }, ...before,
    h("b", {}, first && !first.note ? first.headline : summaryOf(found)), first?.note && ` ${first.headline}`, " ",
    ...placesOf(run, first, h("a", { href: link({ view: "findings", run: run.name }) }, more > 0 ? `all of it, ${count(more)} more` : "all of it")))];
}

/** Return how many problems were found, without the run. @param {Diagnosis} found */
function summaryOf({ summary }) {
  const text = summary.slice(summary.indexOf(": ") + 2);
  return text[0].toUpperCase() + text.slice(1);
}

/** Return a diagnosis as paragraphs. @param {Run} run @param {Diagnosis} found */
export function inFull(run, found) {
  return [h("h3", {}, summaryOf(found)),
    ...found.problems.map((each) => h("div", { class: each.note ? "diagnosed note" : "diagnosed" }, each.note && "Note: ", h("b", {}, each.headline), " ", ...placesOf(run, each),
      h("p", {}, each.advice), each.lines.length > 0 && h("ul", {}, ...each.lines.map((line) => h("li", {}, line))))),
    found.damaged.length > 0 && h("p", {}, "Not read, so that the answer may lack what happened in them:"),
    ...found.damaged.map((each) => h("p", { class: "error" }, each.path, ": ", each.reason)),
    found.unchecked.length > 0 && h("details", {}, h("summary", {}, `${count(found.unchecked.length)} rules could not be checked`),
      h("ul", {}, ...found.unchecked.map((each) => h("li", {}, h("b", {}, each.rule), ": ", each.reason))))];
}

/** Return links to where a problem is, and others. @param {Run} run @param {Diagnosis["problems"][0] | undefined} problem @param {...Node} others */
function placesOf(run, problem, ...others) {
  const { origin, tensor, step = null, mode = null } = problem ?? {};
  const links = [...[...new Set([origin, tensor])].map((name) => name && tensorLink(name, { run: run.name, step, mode })), step !== null && h("a", { href: around(run, { mode, step }) }, "in the overview"), ...others].filter(Boolean);
  return links.flatMap((each, i) => (i ? [" · ", each] : [each]));
}

/** Return the link to a finding in the overview. @param {Run} run @param {{mode: string | null, step: number}} finding */
export function around(run, finding) {
  const mode = modeOf(run, finding.mode) ?? run.modes[0];
  const half = mode ? Math.max(10, Math.round((mode.last - mode.first) / 12)) : 10;
  return link({ view: "overview", run: run.name, mode: finding.mode, from: mode && finding.step - half > mode.first ? finding.step - half : null,
    to: mode && finding.step + half < mode.last ? finding.step + half : null, rows: null, fold: null, q: null, collection: null });
}
