/** Overview: all tensors by all steps, colored by one statistic. */

import { load, loadTensorNames, loadTiles } from "../api.js";
import { choose, chosenRun, inWords, listOf, modeAndWorker, modeOf, rangeOf, tensorLink, toggled } from "../choice.js";
import { scaleOf } from "../colors.js";
import { drawDiagnosis, inOneSentence } from "../diagnosis.js";
import { breakable, fill, h, message, named, note, quiet, select, textbox, toolbar } from "../dom.js";
import { commonPrefix, contains, count, counted, inOrder, number, withoutPrefix } from "../format.js";
import { Heatmap, MISSING, NONFINITE, NOTHING, VALUE, legend } from "../heatmap.js";
import { robustZ } from "../past.js";
import { REPLACE, go, state } from "../state.js";
import { tooltip } from "../tooltip.js";
import { flat, folded } from "../tree.js";

const Z_REACH = 8;
const Z_USUAL = 3;
const WORST = 10;
const TALLEST = 60; // pixels of a row
const NO_TILES = /** @type {any} */ ({ names: [], starts: [], min: [], max: [], missing: [] });

/** @type {ViewMaker} */
export function overview(root, page) {
  const tools = toolbar();
  const key = toolbar();
  const stage = h("div", { class: "stage" });
  const worst = h("aside", { class: "worst", "aria-label": "the most unusual" });
  const area = h("div", { class: "overview" }, stage, worst);
  const diagnosis = h("div");
  const about = h("div", { class: "quiet" });
  root.append(diagnosis, tools, key, area, about);
  const map = new Heatmap(stage, { hover, open, move });
  /** @type {Line[]} */
  let lines = [];
  /** @type {Tiles} */
  let tiles = NO_TILES;
  let now = state();
  /** What `tiles` are of. */
  let shown = { statistic: "", mode: "", worker: "" };
  /** @type {string[]} */
  let saved = [];
  let range = rangeOf(now);
  let [z, held] = [new Float64Array(), new Int32Array()];
  let moving = 0;

  /** @param {State} wanted */
  async function show(wanted) {
    now = wanted;
    const run = chosenRun(page.info, now);
    const choice = choose(run, now);
    drawTools(run, choice);
    stage.classList.toggle("skeleton", !map.model.end);
    if (!choice.mode || !choice.statistic) {
      tiles = NO_TILES;
      stage.classList.remove("skeleton");
      fill(about, message(run.steps ? "This run has saved no statistics of tensors." : "This run has no complete step yet. The first one appears here by itself."));
      return;
    }
    const mode = modeOf(run, choice.mode);
    range = rangeOf(now, mode);
    const { from, to } = range;
    const shownAt = location.hash;
    const columns = Math.max(60, Math.min(600, Math.round((stage.clientWidth * 0.8) / 2)));
    const [loaded, found, all] = await Promise.all([
      // Of the steps that are seen, as many before.
      loadTiles({ run: run.name, ...choice, from: from === null || to === null ? null : Math.max(mode?.first ?? 0, 2 * from - to), to, columns: from === null ? columns : 2 * columns }),
      load("findings", run.name),
      loadTensorNames(run.name),
    ]);
    if (location.hash !== shownAt) return; // another choice was made meanwhile
    tiles = loaded;
    stage.classList.remove("skeleton");
    saved = all;
    held = heldBy(loaded);
    shown = choice;
    z = new Float64Array();
    draw(found);
    drawDiagnosis(diagnosis, page, run, inOneSentence);
  }

  /** @param {Finding[]} found */
  function draw(found) {
    const columns = tiles.starts.length;
    const order = chosenRows(tiles, now).filter((row) => held.subarray(row * columns, (row + 1) * columns).some((at) => at >= 0));
    const names = order.map((row) => tiles.names[row]);
    const prefix = commonPrefix(names);
    const tree = now.fold ? folded(names, Number(now.fold), new Set(listOf(now.toggled))) : flat(names);
    lines = tree.map((line) => ({ row: { ...line.row, text: withoutPrefix(line.row.text, prefix) }, members: line.members.map((at) => order[at]) }));
    const past = now.color !== "value";
    const values = new Float64Array(lines.length * columns);
    const flags = new Uint8Array(lines.length * columns);
    lines.forEach(({ members }, row) => {
      for (let column = 0; column < columns; column++) {
        const at = placeOf(members, column);
        flags[row * columns + column] = at < 0 ? tiles.missing[column] ? MISSING : NOTHING : tiles.nonfinite[at] ? NONFINITE : VALUE;
        values[row * columns + column] = at < 0 ? NaN : tiles.nonfinite[at] ? Infinity : valueAt(at);
      }
    });
    const scale = past ? /** @type {Scale} */ ({ kind: "diverging", low: -Z_REACH, high: Z_REACH, log: false, neutral: Z_USUAL })
      : scaleOf(values.filter((_, i) => flags[i] === VALUE));
    const { from, to } = range;
    const marks = marksOf(found);
    const [row0, row1] = now.rows?.split("-").map(Number) ?? [];
    map.show({ rows: lines.map(({ row }) => row), starts: tiles.starts, end: tiles.end, values, flags, scale, marks },
      { ...(from !== null && { step0: from }), ...(to !== null && { step1: to }), ...(row0 < Math.min(row1, lines.length) && { row0, row1 }) });
    drawLegend(scale, past, flags, marks);
    drawNote(order.length, hiddenOf(names), prefix);
    drawWorst(order, prefix);
    const listed = Number(worst.lastElementChild?.getBoundingClientRect().bottom) - worst.getBoundingClientRect().top + worst.scrollTop;
    area.style.setProperty("--tall", `${Math.ceil(Math.max(440, lines.length * TALLEST + 44, listed))}px`);
  }

  /** List the tensors furthest from their past. Of those beyond the colors or with NaN, the first to leave it is first: it may be the cause; then the one further off before. One that began with NaN is last. @param {number[]} order @param {string} prefix */
  function drawWorst(order, prefix) {
    const { starts, names, nonfinite } = tiles;
    const zs = zOf();
    const columns = starts.length;
    const { from, to } = range;
    const found = order.flatMap((row) => {
      const has = (/** @type {number} */ column) => starts[column] >= (from ?? 0) && starts[column] < (to ?? Infinity) && !Number.isNaN(far(column));
      const far = (/** @type {number} */ column) => nonfinite[row * columns + column] ? Infinity : Math.abs(zs[row * columns + column]);
      const saved = [...starts.keys()].filter(has);
      const at = saved.reduce((best, column, i) => (far(column) > far(saved[best]) ? i : best), 0);
      if (!saved.length || far(saved[at]) < Z_USUAL) return [];
      let first = at;
      while (first > 0 && far(saved[first - 1]) >= Z_USUAL) first--;
      const before = far(saved[first]) < Infinity ? Z_USUAL : first ? far(saved[first - 1]) : 0;
      return [{ row, column: saved[first], worst: saved[at], weight: far(saved[0]) === Infinity ? 0 : Math.min(far(saved[at]), Z_REACH), z: far(saved[at]), before }];
    }).sort((a, b) => b.weight - a.weight || a.column - b.column || b.before - a.before);
    const said = (/** @type {number} */ z, /** @type {number} */ at) => z === Infinity ? "NaN or infinity" : `${zs[at] > 0 ? "+" : "−"}${z >= 99 ? "99 or more" : z.toFixed(1)}`;
    fill(worst, h("h3", {}, found.length ? "Furthest from their past" : "Nothing unusual"),
      found.length ? h("ol", {}, ...found.slice(0, WORST).map(({ row, column, worst: most, z }) => h("li", {
        onpointerenter: () => map.point({ row: lines.findIndex(({ members }) => members.includes(row)), column }), onpointerleave: () => map.point(null) },
        tensorLink(names[row], { step: starts[column], rows: null }, breakable(withoutPrefix(names[row], prefix))),
        quiet(column === most ? `${said(z, row * columns + most)} at step ${count(starts[most])}`
          : `left at ${count(starts[column])}; ${said(z, row * columns + most).replace("infinity", "inf")} at ${count(starts[most])}`))))
        : note(`No value is ${Z_USUAL} deviations from its tensor's past.`),
      found.length > WORST && note(`and ${counted(found.length - WORST, "tensor")} more`));
  }

  /** Return where the value of a cell is: of several tensors, the one that stands out; -1 for none. @param {number[]} members @param {number} column */
  function placeOf(members, column) {
    let [best, weight] = [-1, -1];
    for (const member of members) {
      const at = held[member * tiles.starts.length + column];
      const size = at < 0 ? -1 : tiles.nonfinite[at] ? Infinity : Math.abs(valueAt(at));
      if (size > weight) [best, weight] = [at, size];
    }
    return best;
  }

  /** Return what a place shows: its change, or its most extreme value. @param {number} at */
  function valueAt(at) {
    const [max, min] = [tiles.max[at], tiles.min[at]];
    return now.color !== "value" ? zOf()[at] : Math.abs(max) >= Math.abs(min) ? max : min;
  }

  /** Return how far each cell is from its past. */
  function zOf() {
    const { starts: { length: columns }, max, min, count } = tiles;
    if (z.length !== max.length) {
      z = new Float64Array(max.length);
      for (let from = 0; from < max.length; from += columns) {
        const [high, low] = [max, min].map((each) => robustZ(each.subarray(from, from + columns)));
        // The range of fewer steps is narrower.
        for (let i = 0; i < columns; i++) z[from + i] = high[i] <= 0 && low[i] >= 0 && count[from + i] < count[from + i - 1] ? 0 : Math.abs(high[i]) >= Math.abs(low[i]) ? high[i] : low[i];
      }
    }
    return z;
  }

  /** @param {Finding[]} found */
  function marksOf(found) {
    return found.filter(({ mode, step }) => step !== null && (!mode || mode === shown.mode)).map(({ rule, step, tensor, sentence }) => {
      const at = tiles.names.indexOf(tensor ?? "");
      return { row: lines.findIndex(({ members }) => members.includes(at)), step, text: sentence, onopen: () => go({ view: "findings", finding: `${rule} ${step}` }) };
    });
  }

  /** @param {Run} run @param {Choice} choice */
  function drawTools(run, choice) {
    fill(tools,
      select("statistic", run.statistics.map((value) => [value, inWords(value)]), choice.statistic, (stat) => go({ stat })),
      select("color by", [["", "change from its past"], ["value", "value"]], now.color ?? "", (color) => go({ color })),
      ...modeAndWorker(run, choice),
      run.collections.length > 1 && select("collection", [["", "all"], ...run.collections], now.collection ?? "", (collection) => go({ collection, rows: null })),
      select("rows", [["", "execution order"], ["name", "by name"]], now.order ?? "", (order) => go({ order })),
      select("fold", [["", "nothing"], ...[1, 2, 3, 4].map((depth) => [String(depth), `level ${depth}`])], now.fold ?? "",
        (fold) => go({ fold, toggled: null, rows: null }), "Fold the tensors of a module into one row, which shows the one that stands out."),
      textbox("find", now.q ?? "", (q) => go({ q, rows: null }, REPLACE), "part of a name"),
      (now.from || now.to || now.rows) && h("button", { onclick: () => map.reset() }, "Show all steps"));
  }

  /** @param {Scale} scale @param {boolean} past @param {Uint8Array} flags @param {Mark[]} marks */
  function drawLegend(scale, past, flags, marks) {
    const name = inWords(shown.statistic);
    const format = past ? (/** @type {number} */ value) => (value < 0 ? `${-value} or more lower` : `${value} or more higher`) : number;
    fill(key, legend(scale, past ? `${name}: deviations from its own past` : name, format, [
      past && { kind: "usual", label: `within ${Z_USUAL}: usual` },
      flags.includes(NONFINITE) && { kind: "nonfinite", label: "NaN or infinity" },
      flags.includes(MISSING) && { kind: "missing", label: "step missing" },
      flags.includes(NOTHING) && { kind: "nothing", label: "not saved" },
      marks.length > 0 && { kind: "mark", label: "first finding of a rule in a tensor" }]));
  }

  /** Return the chosen tensors that the map lacks. @param {string[]} drawn */
  function hiddenOf(drawn) {
    const [seen, known] = [new Set(drawn), new Set(tiles.names)];
    return saved.filter((name) => !seen.has(name) && contains(name, now.q) && (!now.collection || known.has(name)));
  }

  /** Say what is seen, and what is not. @param {number} rows @param {string[]} without rows that have no value of this statistic @param {string} prefix */
  function drawNote(rows, without, prefix) {
    const { starts, end } = tiles;
    const steps = end - starts[0];
    const wide = steps / starts.length;
    if (!rows) return fill(about, without.length ? "It was saved of no tensor here." : "No tensor has such a name.");
    fill(about, `${counted(rows, "tensor")} × ${counted(steps, "step")}. `,
      wide > 1.5 && `Each column spans about ${count(wide)} steps and shows the most extreme of them; the wheel zooms in. `,
      prefix && ["The names begin with ", named(prefix), ". "],
      tiles.leftOut > 0 && `Computed from raw values; ${counted(tiles.leftOut, "step")} are left out: there are too many. `,
      "Click a cell for the tensor at that step. ",
      without.length > 0 && h("details", { class: "hidden" }, h("summary", {}, `${counted(without.length, "tensor")} without this statistic ${without.length === 1 ? "is" : "are"} not here`),
        h("ul", {}, ...without.slice(0, 200).map((name) => h("li", {}, tensorLink(name, { step: null }))))));
  }

  /** @param {Cell | null} cell @param {number} x @param {number} y */
  function hover(cell, x, y) {
    if (!cell || !lines[cell.row]) return tooltip(null);
    const { row, members } = lines[cell.row];
    if (cell.column < 0) {
      tooltip({ title: row.key, note: row.kind === "tensor" ? "Click to open" : `${counted(members.length, "tensor")}; click to ${row.kind === "open" ? "fold" : "unfold"}` }, x, y);
      return;
    }
    const { starts, end } = tiles;
    const mark = map.model.marks.find((each) => each.row === cell.row && each.step >= starts[cell.column] && each.step < (starts[cell.column + 1] ?? end));
    tooltip({ title: row.key, rows: describe(members, cell.column), note: mark?.text ?? (row.kind === "tensor" ? "" : `the one of ${members.length} that stands out`) }, x, y);
  }

  /** @param {number[]} members @param {number} column @returns {[string, string][]} */
  function describe(members, column) {
    const { starts, end, missing, names, count: counts, nonfinite, min, max, mean } = tiles;
    const zs = zOf();
    const last = (column + 1 < starts.length ? starts[column + 1] : end) - 1;
    /** @type {[string, string][]} */
    const pairs = [["step", last > starts[column] ? `${count(starts[column])} – ${count(last)}` : count(starts[column])]];
    const at = placeOf(members, column);
    if (at < 0) return [...pairs, ["", missing[column] ? "the step is missing" : "not saved"]];
    const source = at % starts.length;
    if (source !== column) pairs.push(["saved at", count(starts[source])]);
    if (members.length > 1) pairs.push(["tensor", names[Math.floor(at / starts.length)]]);
    if (counts[at] > 1) pairs.push(["min … max", `${number(min[at])} … ${number(max[at])}`], ["mean", number(mean[at])]);
    else if (counts[at]) pairs.push([inWords(shown.statistic), number(mean[at])]);
    if (nonfinite[at]) pairs.push(["NaN or infinity at", counted(nonfinite[at], "step")]);
    if (zs[at]) pairs.push(["against its past", `${Math.abs(zs[at]).toFixed(1)} deviations ${zs[at] > 0 ? "higher" : "lower"}`]);
    return pairs;
  }

  /** Return the step whose value a cell shows, null for a label. @param {Cell} cell */
  function stepOf({ row, column }) {
    if (column < 0) return null;
    const columns = tiles.starts.length;
    const at = held[lines[row].members[0] * columns + column];
    return tiles.starts[at < 0 ? column : at % columns];
  }

  /** @param {Cell} cell */
  function open(cell) {
    const { row } = lines[cell.row];
    if (row.kind !== "tensor") {
      go({ toggled: toggled(now.toggled, row.key), rows: null });
      return;
    }
    tooltip(null);
    go({ view: "tensor", name: row.key, step: stepOf(cell), rows: null });
  }

  /** @param {Seen} window */
  function move(window) {
    clearTimeout(moving);
    tooltip(null);
    const known = modeOf(chosenRun(page.info, now), shown.mode);
    if (!known) return;
    const span = Math.min(window.step1 - window.step0, known.last + 1 - known.first);
    const all = !(span < known.last + 1 - known.first);
    const from = Math.max(known.first, Math.min(known.last + 1 - span, window.step0));
    if (!all) Object.assign(map.window, { step0: from, step1: from + span });
    const rows = window.row1 - window.row0 < lines.length ? `${window.row0.toFixed(1)}-${window.row1.toFixed(1)}` : null;
    const change = { from: all ? null : Math.round(from), to: all ? null : Math.round(from + span), rows };
    moving = setTimeout(() => go(change, REPLACE), all ? 0 : 150);
  }

  return { show };
}

/** Return the places of the tensors to show, in order. @param {Tiles} tiles @param {State} now */
function chosenRows(tiles, now) {
  const rows = tiles.names.map((_, i) => i).filter((i) =>
    contains(tiles.names[i], now.q) && (!now.collection || tiles.collections[i].includes(now.collection)));
  if (now.order === "name") rows.sort((a, b) => inOrder(tiles.names[a], tiles.names[b]));
  return rows;
}

/** Return for each cell the one whose value it shows, until the next is due; -1 for none. @param {Tiles} tiles */
function heldBy({ names, starts, count, nonfinite, missing }) {
  const columns = starts.length;
  const held = new Int32Array(names.length * columns).fill(-1);
  const rounding = starts[1] - starts[0] > 1 ? 1 : 0; // an interval of 50 steps is 6 or 7 columns of 8
  for (let row = 0; row < names.length; row++) {
    /** @type {number[]} */
    const filled = [];
    for (let column = 0; column < columns; column++) if (count[row * columns + column] || nonfinite[row * columns + column]) filled.push(column);
    const gaps = filled.slice(1).map((column, i) => column - filled[i]);
    filled.forEach((column, i) => {
      const interval = rounding + (Math.max(gaps[i - 1] ?? 0, gaps[i + 1] ?? 0) || (gaps[i] ?? 1));
      const end = Math.min(filled[i + 1] ?? columns, column + interval);
      for (let at = column; at < end && (at === column || !missing[at]); at++) held[row * columns + at] = row * columns + column;
    });
  }
  return held;
}
