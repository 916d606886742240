/** Findings: what rules found, each linked to its place. */

import { loadDiagnosis, loadFindings, loadRules, runRules } from "../api.js";
import { chosenRun } from "../choice.js";
import { fill, h, message, quiet, table, toolbar } from "../dom.js";
import { count, number } from "../format.js";
import { firstFindings } from "../findings.js";
import { REPLACE, go, link, state } from "../state.js";

/** @type {ViewMaker} */
export function findings(root, page) {
  const body = h("div", {});
  const tools = toolbar();
  const diagnosis = h("div", { class: "diagnosis" });
  root.append(diagnosis, body, tools);

  /** @param {State} now */
  async function show(now) {
    const run = chosenRun(page.info, now);
    const found = await loadFindings(run.name);
    const firsts = firstFindings(found);
    fill(body, firsts.length ? h("p", { class: "summary" }, `The first is at step ${count(firsts[0].finding.step)}: ${firsts[0].finding.sentence}`) : message("No rule has found anything in this run", run.ended ? ": run some below, or at the shell by " : " so far; watch it by ", h("code", {}, `tensortrial watch ${run.path} --rule ExplodingTensor`)),
      firsts.length ? table({
        rows: firsts, sort: now.sort ?? "step", onsort: (sort) => go({ sort }, REPLACE),
        attributes: ({ finding }) => ({ class: now.finding === `${finding.rule} ${finding.step}` && "chosen" }),
        columns: [
          { title: "step", number: true, key: ({ finding }) => finding.step, cell: ({ finding }) => count(finding.step) },
          { title: "rule", key: ({ finding }) => finding.rule, cell: ({ finding }) => finding.rule },
          { title: "tensor", key: ({ finding }) => finding.tensor, cell: ({ finding }) => finding.tensor
            ? h("a", { class: "name", href: link({ view: "tensor", name: finding.tensor, step: finding.step, mode: finding.mode, from: null, to: null }) }, finding.tensor) : "" },
          { title: "what was found", cell: ({ finding }) => h("span", { class: finding.failed && "warn" }, finding.sentence) },
          { title: "times", hint: "How often the rule found it in this tensor; the row is the first", number: true, key: ({ times }) => times, cell: ({ times, last }) => times > 1 ? `${count(times)}, until ${count(last)}` : "1" },
          { title: "observed", number: true, key: ({ finding }) => finding.observed, cell: ({ finding }) => number(finding.observed) },
          { title: "threshold", number: true, key: ({ finding }) => finding.threshold, cell: ({ finding }) => number(finding.threshold) },
          { title: "", cell: ({ finding }) => h("a", { href: around(run, finding) }, "in the overview") },
        ],
      }) : "");
    if (diagnosis.dataset.run !== run.name) drawDiagnosis(run);
    if (page.info.frozen || tools.childElementCount) return;
    await drawRules(run);
  }

  /** @param {Run} run */
  function drawDiagnosis(run) {
    diagnosis.dataset.run = run.name;
    if (page.info.frozen) {
      // A report has it if that was asked for.
      fill(diagnosis);
      loadDiagnosis(run.name).then((found) => fill(diagnosis, ...diagnosed(run, found)), () => {});
      return;
    }
    const answer = h("div", {});
    const button = runButton("Diagnose this run", "Evaluating all rules on every step …", answer, async () =>
      fill(answer, ...diagnosed(run, await loadDiagnosis(run.name))));
    fill(diagnosis, button, answer);
  }

  /** @param {Run} run */
  async function drawRules(run) {
    const rules = await loadRules();
    if (!rules.length) return;
    const answer = h("span", {});
    const boxes = rules.map((rule) => h("input", { type: "checkbox", value: rule.name, checked: ["ExplodingTensor", "VanishingGradient", "LossNotDecreasing"].includes(rule.name) }));
    const button = runButton("Run these rules", "Evaluating every step …", answer, async () => {
      const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
      fill(answer, await runRules(chosenRun(page.info, state()).name, chosen));
      await show(state());
    });
    button.disabled = !run.ended;
    fill(tools, h("h3", {}, "Rules"), button, !run.ended && quiet("The run has not ended: use tensortrial watch."), answer,
      h("div", { class: "panels" }, ...rules.map((rule, i) => h("label", { class: "field check", title: rule.about }, boxes[i], h("span", {}, h("b", {}, rule.name), " ", rule.about.split("\n")[0])))));
  }

  return { show };
}

/**
 * Return a button that shows in `answer` that it works, and an error of its work.
 * @param {string} text
 * @param {string} busy
 * @param {HTMLElement} answer
 * @param {() => Promise<void>} work
 */
function runButton(text, busy, answer, work) {
  answer.setAttribute("role", "status");
  const button = h("button", { onclick: async () => {
    button.disabled = true;
    fill(answer, busy);
    try {
      await work();
    } catch (error) {
      fill(answer, h("span", { class: "bad" }, String(error)));
    }
    button.disabled = false;
  } }, text);
  return button;
}

/** Return a diagnosis as paragraphs. @param {Run} run @param {Diagnosis} found */
function diagnosed(run, found) {
  return [h("h3", {}, found.summary),
    ...found.problems.map((each) => h("p", { class: each.note && "quiet" }, each.text, " ",
      each.step !== null && h("a", { href: around(run, { mode: each.mode, step: each.step }) }, "in the overview"), " ",
      each.tensor && h("a", { class: "name", href: link({ view: "tensor", name: each.tensor, step: each.step, mode: each.mode, from: null, to: null }) }, each.tensor))),
    found.damaged.length > 0 && h("p", {}, "Not read, so that the answer may lack what happened in them:"),
    ...found.damaged.map((each) => h("p", { class: "error" }, each.path, ": ", each.reason)),
    found.unchecked.length > 0 && h("details", {}, h("summary", {}, `${count(found.unchecked.length)} rules could not be checked`),
      h("ul", {}, ...found.unchecked.map((each) => h("li", {}, h("b", {}, each.rule), ": ", each.reason))))];
}

/** Return the link to a finding in the overview, with as many steps before as after. @param {Run} run @param {{mode: string | null, step: number}} finding */
export function around(run, finding) {
  const mode = run.modes.find((each) => each.mode === finding.mode) ?? run.modes[0];
  const half = mode ? Math.max(10, Math.round((mode.last - mode.first) / 12)) : 10;
  return link({ view: "overview", mode: finding.mode, from: mode && finding.step - half > mode.first ? finding.step - half : null,
    to: mode && finding.step + half < mode.last ? finding.step + half : null, rows: null, fold: null, q: null, collection: null });
}
