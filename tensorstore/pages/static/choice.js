/** What the state chooses: a run, a statistic, a mode, a worker. */

import { h, select } from "./dom.js";
import { inOrder } from "./format.js";
import { go, link, state } from "./state.js";

/** @type {Record<string, string>} */
const STATISTICS = {
  l2: "L2 norm", l1: "L1 norm", std: "standard deviation", min: "minimum", max: "maximum", nan_count: "NaN count", inf_count: "infinity count", rms: "RMS",
  zero_fraction: "share of zeros", update_ratio: "update / parameter", gradient_ratio: "gradient / parameter", digest_changed: "changed since last save", value: "scalar value",
};

/** Return a statistic in words. @param {string} statistic @returns {string} */
export const inWords = (statistic) => statistic.startsWith("abs_") ? `${inWords(statistic.slice(4))} of |x|` : STATISTICS[statistic] ?? statistic.replaceAll("_", " ");

/** Return whether the state names an unknown run. @param {Info} info @param {State} now */
export const isStrange = (info, now) => Boolean(now.run) && !info.runs.some((run) => run.name === now.run);

/** Return the runs, the newest first. @param {Info} info */
export const newestFirst = (info) => [...info.runs].sort((a, b) => (b.started ?? 0) - (a.started ?? 0) || inOrder(a.name, b.name));

/** Return the run that the state names, by default the newest ticked one. @param {Info} info @param {State} now */
export function chosenRun(info, now) {
  const ticked = tickedRuns(info, now);
  return info.runs.find((run) => run.name === now.run) ?? ticked[0] ?? newestFirst(info)[0];
}

/** Return whether lists leave a run out. @param {Run} run @param {State} now */
export const isHidden = (run, now) => (run.archived && !now.archived) || listOf(now.hidden).includes(run.name);

/** How many runs are ticked at first. */
const MOST_RUNS = 30;

/** Return the ticked runs, the newest first. @param {Info} info @param {State} now */
export function tickedRuns(info, now) {
  const runs = newestFirst(info);
  if (now.runs === undefined) return runs.filter((run) => !isHidden(run, now)).slice(0, MOST_RUNS);
  const isBut = now.runs[0] === "-";
  const named = new Set(listOf(now.runs.slice(Number(isBut))));
  return runs.filter(({ name }) => named.has(name) !== isBut);
}

/** Return ticked runs as the state holds them: of many, "-" and the others, if these are fewer. @param {Info} info @param {string[]} names */
export function ticking(info, names) {
  const ticked = new Set(names);
  const others = info.runs.map(({ name }) => name).filter((name) => !ticked.has(name));
  return ticked.size > MOST_RUNS && others.length < ticked.size ? `-${JSON.stringify(others)}` : [...ticked];
}

/** Return their names. @param {Info} info @param {State} now */
export const tickedNames = (info, now) => tickedRuns(info, now).map(({ name }) => name);

/** Return the two runs that are compared, by default the newest ticked ones. @param {Info} info @param {State} now */
export function comparedNames(info, now) {
  const names = info.runs.map(({ name }) => name);
  const [newest, older] = tickedNames(info, now).concat(names);
  const a = names.find((name) => name === now.a) ?? older;
  return [a, [now.b, newest, ...names].find((name) => name !== a && names.includes(name)) ?? ""];
}

/** Return the step that a text of the state is, null if it is none. @param {string | undefined} text */
export const stepOf = (text) => text && Number.isSafeInteger(Number(text)) ? Number(text) : null;

/** Return the range of steps that the state shows, all if it has none of a mode. @param {State} now @param {ModeSteps} [mode] */
export function rangeOf(now, mode) {
  const [from, to] = [now.from, now.to].map(stepOf);
  const [low, high] = [from ?? -Infinity, to ?? Infinity];
  return mode && low < high && low <= mode.last && high > mode.first ? { from, to } : { from: null, to: null };
}

/** Return what the state holds as JSON, null if it is none. @param {string | undefined} text */
export function held(text) {
  try {
    return JSON.parse(text ?? "null");
  } catch {
    return null;
  }
}

/** Return the list of texts that the state holds as JSON. @param {string | undefined} text */
export function listOf(text) {
  const list = held(text);
  return Array.isArray(list) ? list.map(String) : [];
}

/** Return a list of the state with a member toggled; null if empty. @param {string | undefined} text @param {string} member */
export function toggled(text, member) {
  const list = listOf(text);
  const next = list.includes(member) ? list.filter((each) => each !== member) : [...list, member];
  return next.length ? next : null;
}

/** Return the keys of metadata, those that differ first. @param {Run[]} runs */
export function metadataKeys(runs) {
  const known = [...new Set(runs.flatMap(({ metadata }) => Object.keys(metadata)))];
  const keys = known.map((key) => ({ key, differs: new Set(runs.map(({ metadata }) => JSON.stringify(metadata[key]))).size > 1 }));
  return keys.sort((a, b) => Number(b.differs) - Number(a.differs));
}

/** Return the numbers of runs' colors: their order by start, or that of their groups. @param {Info} info @param {State} now */
export function colorsOf(info, now) {
  const oldest = newestFirst(info).reverse();
  const group = (/** @type {Run} */ run) => JSON.stringify(run.metadata[now.group] ?? null);
  const groups = now.group ? [...new Set(oldest.map(group))] : [];
  const places = new Map(oldest.map((run, i) => [run.name, now.group ? groups.indexOf(group(run)) : i]));
  return (/** @type {string} */ name) => places.get(name) ?? 0;
}

/** Return a button that adds something to a list of the state, or removes it. @param {string} key of the list @param {string} member @param {State} now @param {string} label */
export function star(key, member, now, label) {
  const on = listOf(now[key]).includes(member);
  return h("button", { class: "plain pin", "aria-pressed": String(on), "aria-label": `pin ${label}`, title: on ? "No longer at the top" : "Keep at the top", onclick: () => go({ [key]: toggled(now[key], member) }) }, on ? "★" : "☆");
}

/** Return the link to a run. @param {string} run @param {string | null} [view] by default the present one */
export const runLink = (run, view = state().view) => link({ run, view, name: null, step: null, from: null, to: null, worker: null, mode: null });

/** Return what is known of a mode of a run. @param {Run} run @param {string | null | undefined} mode */
export const modeOf = (run, mode) => run.modes.find((each) => each.mode === mode);

/** Return a link to a tensor. @param {string} name @param {Record<string, any>} at what else the state has: step, mode, run @param {Child} [text] */
export const tensorLink = (name, at, text = name) => h("a", { class: "name", href: link({ view: "tensor", name, from: null, to: null, ...at }) }, text);

/** Return what chooses among several modes and workers. @param {Run} run @param {Choice} choice */
export function modeAndWorker(run, { mode, worker }) {
  return [run.modes.length > 1 && select("mode", run.modes.map((each) => each.mode), mode, (to) => go({ mode: to, step: null, from: null, to: null })),
    run.workers.length > 1 && select("worker", [["", "all"], ...run.workers], worker, (to) => go({ worker: to }))];
}

/** Return what is chosen of a run. @param {Run} run @param {State} now */
export function choose(run, now) {
  const statistic = now.stat && run.statistics.includes(now.stat) ? now.stat
    : ["l2", "abs_mean", "std", "mean"].find((each) => run.statistics.includes(each)) ?? run.statistics[0] ?? "";
  const mode = (modeOf(run, now.mode) ?? run.modes[0])?.mode ?? "";
  return { statistic, mode, worker: run.workers.includes(now.worker) ? now.worker : "" };
}
