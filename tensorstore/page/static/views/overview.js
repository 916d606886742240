/** Overview: all tensors by all steps, coloured by one statistic. */

import { loadFindings, loadTiles } from "../api.js";
import { STATISTICS, choose, chosenRun } from "../choice.js";
import { scaleOf } from "../colors.js";
import { fill, h, select, textbox } from "../dom.js";
import { count, counted, number, printable } from "../format.js";
import { Heatmap, MISSING, NONFINITE, NOTHING, VALUE, legend } from "../heatmap.js";
import { robustZ } from "../past.js";
import { go, link, state } from "../state.js";
import { tooltip } from "../tooltip.js";
import { firstFindings } from "../findings.js";
import { flat, folded } from "../tree.js";

const Z_REACH = 8;

/** @type {import("../app.js").ViewMaker} */
export function overview(root, page) {
  const tools = h("div", { class: "tools" });
  const key = h("div", { class: "tools" });
  const stage = h("div", { class: "stage" });
  const note = h("div", { class: "quiet" });
  root.append(tools, key, stage, note);
  const map = new Heatmap(stage, { hover, open, move });
  /** @type {import("../tree.js").Line[]} */
  let lines = [];
  /** @type {Tiles | null} */
  let tiles = null;
  /** @type {Float32Array} */
  let z = new Float32Array();
  /** @type {Int32Array} */
  let held = new Int32Array();
  let moving = 0;
  let shownStatistic = "";

  /** @param {State} now */
  async function show(now) {
    const run = chosenRun(page.info, now);
    const choice = choose(run, now);
    drawTools(run, choice, now);
    if (!choice.mode || !choice.statistic) {
      tiles = null;
      fill(note, h("p", { class: "message" }, run.steps ? "This run has saved no statistics of tensors." : "This run has no complete step yet. The page follows it: the first step appears here by itself."));
      return;
    }
    const shownAt = location.hash;
    const columns = Math.max(60, Math.min(600, Math.round((stage.clientWidth * 0.8) / 2)));
    const [loaded, found] = await Promise.all([
      loadTiles({ run: run.name, ...choice, ...withPast(run, choice.mode, now), columns: now.from ? 2 * columns : columns }),
      loadFindings(run.name),
    ]);
    if (location.hash !== shownAt) return; // another choice was made meanwhile
    tiles = loaded;
    held = heldBy(loaded);
    shownStatistic = choice.statistic;
    z = new Float32Array();
    draw(now, choice, found);
  }

  /**
   * @param {State} now
   * @param {{statistic: string, mode: string, worker: string}} choice
   * @param {Finding[]} found
   */
  function draw(now, choice, found) {
    if (!tiles) return;
    const all = chosenRows(tiles, now);
    const order = all.filter((row) => hasValues(/** @type {Tiles} */ (tiles), row));
    const names = order.map((row) => /** @type {Tiles} */ (tiles).names[row]);
    const toggled = new Set(/** @type {string[]} */ (JSON.parse(now.toggled ?? "[]")));
    const tree = now.fold ? folded(names, Number(now.fold), toggled) : flat(names);
    lines = tree.map((line) => ({ row: line.row, members: line.members.map((at) => order[at]) }));
    const columns = tiles.starts.length;
    const past = now.color !== "value";
    const shown = past ? zOf(tiles) : tiles.mean;
    const values = new Float32Array(lines.length * columns);
    const flags = new Uint8Array(lines.length * columns);
    lines.forEach(({ members }, row) => {
      for (let column = 0; column < columns; column++) {
        const [flag, value] = cellOf(members, column, shown, past);
        flags[row * columns + column] = flag;
        values[row * columns + column] = value;
      }
    });
    const scale = past ? /** @type {import("../colors.js").Scale} */ ({ kind: "diverging", low: -Z_REACH, high: Z_REACH, log: false })
      : scaleOf(values.filter((_, i) => flags[i] === VALUE));
    const from = now.from ? Number(now.from) : undefined;
    const to = now.to ? Number(now.to) : undefined;
    const marks = marksOf(found, choice);
    map.show({ rows: lines.map(({ row }) => row), starts: tiles.starts, end: tiles.end, values, flags, scale, marks },
      { step0: from, step1: to, ...(now.rows ? rowsOf(now.rows) : {}) });
    drawLegend(scale, past, choice, flags, marks);
    drawNote(order.length, all.length - order.length);
  }

  /**
   * Return the flag and the value of a cell: of several tensors, the one that stands out.
   * @param {number[]} members
   * @param {number} column
   * @param {Float32Array} shown
   * @param {boolean} past
   * @returns {[number, number]}
   */
  function cellOf(members, column, shown, past) {
    const { starts, nonfinite, missing, max, min } = /** @type {Tiles} */ (tiles);
    let [best, weight] = [NaN, -1];
    for (const member of members) {
      const at = held[member * starts.length + column];
      if (at < 0) continue;
      if (nonfinite[at]) return [NONFINITE, Infinity];
      // A column of many steps shows its most extreme one.
      const value = past ? shown[at] : Math.abs(max[at]) >= Math.abs(min[at]) ? max[at] : min[at];
      if (Math.abs(value) > weight) [best, weight] = [value, Math.abs(value)];
    }
    if (weight >= 0) return [VALUE, best];
    return [missing[column] ? MISSING : NOTHING, NaN];
  }

  /** @param {Tiles} loaded */
  function zOf(loaded) {
    const columns = loaded.starts.length;
    if (z.length !== loaded.max.length) {
      z = new Float32Array(loaded.max.length);
      for (let row = 0; row < loaded.names.length; row++) {
        const part = [row * columns, (row + 1) * columns];
        const high = robustZ(loaded.max.subarray(part[0], part[1]));
        const low = robustZ(loaded.min.subarray(part[0], part[1]));
        for (let i = 0; i < columns; i++) z[part[0] + i] = Math.abs(high[i]) >= Math.abs(low[i]) ? high[i] : low[i];
      }
    }
    return z;
  }

  /**
   * @param {Finding[]} found
   * @param {{mode: string}} choice
   */
  function marksOf(found, choice) {
    /** @type {import("../heatmap.js").Mark[]} */
    const marks = [];
    for (const { finding } of firstFindings(found)) {
      if (finding.mode && finding.mode !== choice.mode) continue;
      const tensor = tiles ? tiles.names.indexOf(finding.tensor ?? "") : -1;
      const row = lines.findIndex(({ members }) => members.includes(tensor));
      marks.push({ row, step: finding.step, text: finding.sentence, onopen: () => openFinding(finding) });
    }
    return marks;
  }

  /**
   * @param {Run} run
   * @param {ReturnType<typeof choose>} choice
   * @param {State} now
   */
  function drawTools(run, choice, now) {
    const options = (/** @type {string[]} */ values) => values.map((value) => ({ value, text: printable(STATISTICS[value] ?? value) }));
    fill(tools,
      select("statistic", options(run.statistics), choice.statistic, (stat) => go({ stat })),
      select("colour by", [{ value: "past", text: "change against its own past" }, { value: "value", text: "value" }], now.color ?? "past",
        (color) => go({ color: color === "past" ? null : color }), "Own past: how far from the median of the tensor's earlier steps, in units of their spread (robust z). Value: the statistic itself."),
      run.modes.length > 1 && select("mode", options(run.modes.map(({ mode }) => mode)), choice.mode, (mode) => go({ mode, from: null, to: null })),
      run.workers.length > 1 && select("worker", [{ value: "", text: "all (the most extreme)" }, ...options(run.workers)], choice.worker, (worker) => go({ worker })),
      run.collections.length > 1 && select("collection", [{ value: "", text: "all" }, ...options(run.collections)], now.collection ?? "", (collection) => go({ collection, rows: null })),
      select("rows", [{ value: "", text: "in execution order" }, { value: "name", text: "by name" }], now.order ?? "", (order) => go({ order })),
      select("fold", [{ value: "", text: "nothing" }, ...[1, 2, 3, 4].map((depth) => ({ value: String(depth), text: `modules, level ${depth}` }))], now.fold ?? "",
        (fold) => go({ fold, toggled: null, rows: null }), "Fold the tensors of a module into one row, which shows the one that stands out."),
      textbox("find", now.q ?? "", (q) => go({ q, rows: null }, { replace: true }), { placeholder: "part of a name" }),
      (now.from || now.to || now.rows) && h("button", { onclick: () => map.reset() }, "Show all steps"));
  }

  /**
   * @param {import("../colors.js").Scale} scale
   * @param {boolean} past
   * @param {{statistic: string}} choice
   * @param {Uint8Array} flags
   * @param {import("../heatmap.js").Mark[]} marks
   */
  function drawLegend(scale, past, choice, flags, marks) {
    const name = STATISTICS[choice.statistic] ?? choice.statistic;
    const has = (/** @type {number} */ flag) => flags.includes(flag);
    /** @type {Parameters<typeof legend>[3]} */
    const others = [];
    if (has(NONFINITE)) others.push({ kind: "nonfinite", label: "NaN or infinity" });
    if (has(MISSING)) others.push({ kind: "missing", label: "step missing" });
    if (has(NOTHING)) others.push({ kind: "nothing", label: "not saved" });
    if (marks.length) others.push({ kind: "mark", label: "first finding of a rule in a tensor" });
    const format = past ? (/** @type {number} */ value) => (value < 0 ? `${value} lower` : `+${value} higher`) : number;
    fill(key, legend(scale, past ? `${name} against the tensor's own past (robust z)` : name, format, others));
  }

  /**
   * @param {number} rows
   * @param {number} without rows that have no value of this statistic
   */
  function drawNote(rows, without) {
    if (!tiles) return;
    const steps = tiles.end - tiles.starts[0];
    const wide = steps / tiles.starts.length;
    fill(note, rows + without === 0 ? "No tensor has such a name." : rows === 0 ? "Nothing was saved of this statistic here." : `${counted(rows, "tensor")} × ${counted(steps, "step")}. ` +
      (wide > 1.5 ? `Each column spans about ${count(wide)} steps and shows the most extreme of them; zoom in (wheel) for single steps. ` : "") +
      (without ? `${counted(without, "tensor")} without this statistic ${without === 1 ? "is" : "are"} left out. ` : "") + "Click a cell for the tensor at that step.");
  }

  /**
   * @param {import("../heatmap.js").Cell | null} cell
   * @param {number} x
   * @param {number} y
   */
  function hover(cell, x, y) {
    if (!cell || !tiles || !lines[cell.row]) {
      tooltip(null);
      return;
    }
    const { row, members } = lines[cell.row];
    if (cell.column < 0) {
      tooltip({ title: printable(row.key), pairs: [], note: row.kind === "tensor" ? "Click to open" : `${counted(members.length, "tensor")}; click to ${row.kind === "open" ? "fold" : "unfold"}` }, x, y);
      return;
    }
    tooltip({ title: printable(row.key), pairs: describe(members, cell.column), note: row.kind === "tensor" ? "" : `the one of ${members.length} that stands out` }, x, y);
  }

  /**
   * @param {number[]} members
   * @param {number} column
   * @returns {[string, string][]}
   */
  function describe(members, column) {
    const loaded = /** @type {Tiles} */ (tiles);
    const { starts, end } = loaded;
    const zs = zOf(loaded);
    const last = (column + 1 < starts.length ? starts[column + 1] : end) - 1;
    /** @type {[string, string][]} */
    const pairs = [["step", last > starts[column] ? `${count(starts[column])} – ${count(last)}` : count(starts[column])]];
    const places = members.map((member) => held[member * starts.length + column]).filter((place) => place >= 0);
    const at = places.length ? places.reduce((best, each) => (loaded.nonfinite[each] > loaded.nonfinite[best] || Math.abs(zs[each]) > Math.abs(zs[best]) ? each : best)) : -1;
    if (at < 0) return [...pairs, ["", loaded.missing[column] ? "the step is missing" : "not saved"]];
    const source = at % starts.length;
    if (source !== column) pairs.push(["saved at", count(starts[source])]);
    if (members.length > 1) pairs.push(["tensor", printable(loaded.names[Math.floor(at / starts.length)])]);
    if (loaded.count[at] > 1) pairs.push(["min … max", `${number(loaded.min[at])} … ${number(loaded.max[at])}`], ["mean", number(loaded.mean[at])]);
    else if (loaded.count[at]) pairs.push([STATISTICS[shownStatistic] ?? "value", number(loaded.mean[at])]);
    if (loaded.nonfinite[at]) pairs.push(["NaN or infinity at", counted(loaded.nonfinite[at], "step")]);
    if (Number.isFinite(zs[at])) pairs.push(["against its past", `${zs[at] > 0 ? "+" : ""}${zs[at].toFixed(1)} z`]);
    return pairs;
  }

  /**
   * Return the step whose value a cell of one tensor shows, null for a label.
   * @param {import("../heatmap.js").Cell} cell
   */
  function stepOf({ row, column }) {
    if (column < 0 || !tiles) return null;
    const columns = tiles.starts.length;
    const at = held[lines[row].members[0] * columns + column];
    return tiles.starts[at < 0 ? column : at % columns];
  }

  /** @param {import("../heatmap.js").Cell} cell */
  function open(cell) {
    const { row } = lines[cell.row];
    if (row.kind !== "tensor") {
      const toggled = new Set(/** @type {string[]} */ (JSON.parse(state().toggled ?? "[]")));
      if (!toggled.delete(row.key)) toggled.add(row.key);
      go({ toggled: toggled.size ? JSON.stringify([...toggled]) : null, rows: null });
      return;
    }
    tooltip(null);
    go({ view: "tensor", name: row.key, step: stepOf(cell), rows: null });
  }

  /** @param {import("../heatmap.js").Window} window */
  function move(window) {
    clearTimeout(moving);
    tooltip(null);
    const run = chosenRun(page.info, state());
    const { mode } = choose(run, state());
    const known = run.modes.find((each) => each.mode === mode);
    if (!known) return;
    const span = Math.min(window.step1 - window.step0, known.last + 1 - known.first);
    const all = !(span < known.last + 1 - known.first);
    const from = Math.max(known.first, Math.min(known.last + 1 - span, window.step0));
    if (!all) Object.assign(map.window, { step0: from, step1: from + span });
    const rows = window.row1 - window.row0 < lines.length ? `${window.row0.toFixed(1)}-${window.row1.toFixed(1)}` : null;
    const change = { from: all ? null : Math.round(from), to: all ? null : Math.round(from + span), rows };
    moving = setTimeout(() => go(change, { replace: true }), all ? 0 : 150);
  }

  return { show };
}

/**
 * Return the places of the tensors to show, in the order to show them.
 * @param {Tiles} tiles
 * @param {State} now
 */
function chosenRows(tiles, now) {
  const wanted = (now.q ?? "").toLowerCase();
  const rows = tiles.names.map((_, i) => i).filter((i) =>
    tiles.names[i].toLowerCase().includes(wanted) && (!now.collection || tiles.collections[i].includes(now.collection)));
  if (now.order === "name") rows.sort((a, b) => tiles.names[a].localeCompare(tiles.names[b], undefined, { numeric: true }));
  return rows;
}

/**
 * Return the steps to load: those that are seen, and as many before them as their past.
 * @param {Run} run
 * @param {string} mode
 * @param {State} now
 */
function withPast(run, mode, now) {
  if (!now.from || !now.to) return { from: null, to: null };
  const first = run.modes.find((each) => each.mode === mode)?.first ?? 0;
  const [from, to] = [Number(now.from), Number(now.to)];
  return { from: Math.max(first, from - (to - from)), to };
}

/**
 * @param {Tiles} tiles
 * @param {number} row
 */
function hasValues({ starts, count, nonfinite }, row) {
  for (let at = row * starts.length; at < (row + 1) * starts.length; at++) if (count[at] || nonfinite[at]) return true;
  return false;
}

/**
 * Return, for each cell, the cell whose value it shows, -1 for none. A tensor that is saved at every tenth step holds its
 * value until the next one is due.
 * @param {Tiles} tiles
 */
function heldBy({ names, starts, count, nonfinite, missing }) {
  const columns = starts.length;
  const held = new Int32Array(names.length * columns).fill(-1);
  for (let row = 0; row < names.length; row++) {
    /** @type {number[]} */
    const filled = [];
    for (let column = 0; column < columns; column++) if (count[row * columns + column] || nonfinite[row * columns + column]) filled.push(column);
    const gaps = filled.slice(1).map((column, i) => column - filled[i]).sort((a, b) => a - b);
    const interval = gaps[gaps.length >> 1] ?? 1;
    filled.forEach((column, i) => {
      const end = Math.min(filled[i + 1] ?? columns, column + interval);
      for (let at = column; at < end && (at === column || !missing[at]); at++) held[row * columns + at] = row * columns + column;
    });
  }
  return held;
}

/** @param {string} text */
function rowsOf(text) {
  const [row0, row1] = text.split("-").map(Number);
  return { row0, row1 };
}

/** @param {Finding} finding */
function openFinding(finding) {
  location.hash = link({ view: "findings", finding: `${finding.rule} ${finding.step}` });
}
