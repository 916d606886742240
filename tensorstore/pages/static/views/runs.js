/** Runs: all of them as a table, and their hyperparameters against a metric. */

import { loadScalarTable, loadSizes, unlessMissing } from "../api.js";
import { colorsOf, listOf, metadataKeys, metadataOf, newestFirst, tickedRuns } from "../choice.js";
import { fill, h, message, select, table, toolbar } from "../dom.js";
import { saveCsv } from "../download.js";
import { count, date, duration, number, size, textOf } from "../format.js";
import { parallel, scatter } from "../hyperparameters.js";
import { bestOf, rankOf } from "../scalars.js";
import { groupsOf, matches, stroke } from "../side.js";
import { REPLACE, go, link } from "../state.js";

const MOST_METADATA = 6;

/** @type {ViewMaker} */
export function runs(root, page) {
  const tools = toolbar();
  const plot = h("div", {});
  const body = h("div", {});
  root.append(tools, plot, body);
  /** @type {Record<string, number>} */
  let sizes = {};
  /** @type {ScalarRow[]} */
  let scalars = [];

  /** @param {State} now */
  async function show(now) {
    const wanted = now.cols === undefined ? [] : listOf(now.cols);
    if (!body.childElementCount) draw(now);
    scalars = await loadScalarTable();
    if (wanted.includes("size")) {
      const found = await unlessMissing(loadSizes());
      if (!(found instanceof Error)) sizes = found;
    }
    draw(now);
  }

  /** @param {State} now */
  function draw(now) {
    const hidden = new Set(listOf(now.hidden));
    const rows = newestFirst(page.info).filter((run) => !hidden.has(run.name) && matches(run, (now.rq ?? "").toLowerCase()));
    const all = columnsOf(rows);
    const chosen = now.cols === undefined ? defaultsOf(all, rows) : listOf(now.cols);
    const columns = all.filter(({ key }) => chosen.includes(key));
    drawTools(all, columns, rows, now);
    drawPlot(all, rows, now);
    const ticked = tickedRuns(page.info, now).map(({ name }) => name);
    const color = colorsOf(page.info, now);
    fill(body, ...groupsOf(rows, now).flatMap(([group, members]) => [group && h("h3", { class: "group" }, group), table({
      rows: members, sort: now.sort ?? "", onsort: (sort) => go({ sort }, REPLACE), empty: "No run matches.",
      attributes: (run) => ({ class: now.runs !== undefined && ticked.includes(run.name) && "chosen" }),
      columns: [
        { title: "run", key: (run) => run.name, cell: (run) => h("span", { class: "runname" }, stroke(color(run.name)), h("a", { class: "name", href: link({ view: null, run: run.name, name: null, step: null, from: null, to: null }) }, run.name),
          !run.ended && h("span", { class: "status live", title: "It may be running." })) },
        ...columns.map((column) => ({ title: column.title, hint: column.hint, number: column.number, key: column.value, cell: column.cell ?? ((run) => textOf(column.value(run))) })),
      ],
      summary: members.length > 1 && now.group ? ["mean", ...columns.map((column) => column.number ? meanOf(members.map(column.value)) : "")] : undefined,
    })]));
    if (page.info.damaged.length) {
      body.append(h("h3", {}, "Could not be opened"), ...page.info.damaged.map((text) => h("p", { class: "error" }, text)));
    }
  }

  /** @param {Column[]} all @param {Column[]} columns @param {Run[]} rows @param {State} now */
  function drawTools(all, columns, rows, now) {
    const open = tools.querySelector("details")?.open;
    const shown = columns.map(({ key }) => key);
    const ticked = tickedRuns(page.info, now);
    const box = (/** @type {Column} */ { key, title }) => h("label", { class: "field check" },
      h("input", { type: "checkbox", checked: shown.includes(key), "aria-label": `column ${title}`,
        onchange: () => go({ cols: JSON.stringify(shown.includes(key) ? shown.filter((each) => each !== key) : [...shown, key]) }, REPLACE) }), h("span", {}, title));
    fill(tools,
      page.info.runs.length > 1 && select("plot", [{ value: "", text: "none" }, { value: "scatter", text: "scatter" }, { value: "parallel", text: "parallel coordinates" }], now.plot ?? "", (to) => go({ plot: to })),
      h("details", { class: "chooser", open }, h("summary", {}, "columns"), h("div", {}, ...all.map(box))),
      now.runs !== undefined && ticked.length > 0 && ticked.length < page.info.runs.length && h("button", { title: "Leave them out of the table and the list", onclick: () => go({ hidden: JSON.stringify([...listOf(now.hidden), ...ticked.map(({ name }) => name)]), runs: null }) }, `Hide the ${count(ticked.length)} ticked`),
      ticked.length === 2 && now.runs !== undefined && h("a", { href: link({ view: "compare", a: ticked[1].name, b: ticked[0].name }) }, "Compare the two →"),
      h("button", { onclick: () => saveCsv("runs", ["run", ...columns.map(({ title }) => title)], rows.map((run) => [run.name, ...columns.map((column) => column.value(run))])) }, "CSV"));
  }

  /** @param {Column[]} all @param {Run[]} rows @param {State} now */
  function drawPlot(all, rows, now) {
    fill(plot);
    if (!now.plot) return;
    const metrics = all.filter(({ key }) => key.startsWith("last ") || key.startsWith("best "));
    const parameters = all.filter(({ key }) => key.startsWith("meta ") && new Set(rows.map((run) => textOf(valueOf(all, key, run)))).size > 1);
    if (!metrics.length || !parameters.length) {
      fill(plot, message("Nothing to plot: it needs a scalar, and metadata that differs between runs."));
      return;
    }
    const y = metrics.find(({ key }) => key === now.py) ?? metrics.find(({ key }) => key.startsWith("best ")) ?? metrics[0];
    const x = parameters.find(({ key }) => key === now.px) ?? parameters[0];
    const options = (/** @type {Column[]} */ columns) => columns.map(({ key, title }) => ({ value: key, text: title }));
    const color = colorsOf(page.info, now);
    const open = (/** @type {Run} */ run) => go({ view: "overview", run: run.name });
    fill(plot, h("div", { class: "tools" },
      now.plot === "scatter" && select("x", options(parameters), x.key, (px) => go({ px }, REPLACE)),
      select(now.plot === "scatter" ? "y" : "metric", options(metrics), y.key, (py) => go({ py }, REPLACE))));
    plot.append(now.plot === "scatter" ? scatter({ runs: rows, x, y, color, open }) : parallel({ runs: rows, columns: [...parameters.slice(0, 8), y], open }));
  }

  /** @param {Run[]} rows @returns {Column[]} */
  function columnsOf(rows) {
    /** @type {Map<string, Map<string, ScalarRow>>} */
    const found = new Map();
    for (const row of scalars) {
      const key = `${row.name}${row.mode === "TRAIN" || row.mode === "GLOBAL" ? "" : ` · ${row.mode}`}`;
      const of = found.get(key) ?? new Map();
      found.set(key, of.set(row.run, row));
    }
    const losses = new Set(scalars.filter(({ loss }) => loss).map(({ name }) => name));
    const ranked = [...found].sort(([p, a], [q, b]) => rankIn(a) - rankIn(b) || Number(p.includes(" · ")) - Number(q.includes(" · ")));
    /** @param {Map<string, ScalarRow>} of */
    function rankIn(of) {
      const [first] = of.values();
      return rankOf(first.name, losses.has(first.name));
    }
    const seconds = (/** @type {Run} */ run) => run.started !== null && run.saved !== null ? Math.max(0, run.saved - run.started) / 1000 : null;
    return [
      { key: "state", title: "state", value: (run) => run.ended ? "ended" : "open" },
      { key: "findings", title: "findings", number: true, value: (run) => run.findings, cell: (run) => run.findings ? h("a", { class: "bad", href: link({ view: "findings", run: run.name }) }, count(run.findings)) : "0" },
      { key: "steps", title: "steps", number: true, value: (run) => run.steps, cell: (run) => count(run.steps) },
      ...ranked.flatMap(/** @returns {Column[]} */ ([key, of]) => [
        { key: `last ${key}`, title: `${key} last`, number: true, value: (run) => of.get(run.name)?.last.value ?? null, cell: (run) => numberOf(of.get(run.name)?.last.value) },
        { key: `best ${key}`, title: `${key} best`, number: true, value: (run) => bestIn(of.get(run.name)), cell: (run) => number(bestIn(of.get(run.name))) },
      ]),
      ...metadataKeys(rows).map(/** @returns {Column} */ ({ key }) => ({ key: `meta ${key}`, title: key, number: rows.every((run) => typeof (metadataOf(run)[key] ?? 0) === "number"), value: (run) => metadataOf(run)[key] })),
      { key: "started", title: "started", value: (run) => run.started, cell: (run) => h("span", { class: "date" }, date(run.started)) },
      { key: "duration", title: "duration", number: true, value: seconds, cell: (run) => { const of = seconds(run); return of === null ? "–" : duration(of); } },
      { key: "workers", title: "workers", number: true, value: (run) => run.workers.length },
      { key: "size", title: "size of its files", number: true, value: (run) => sizes[run.name], cell: (run) => size(sizes[run.name]) },
      { key: "framework", title: "framework", value: (run) => run.framework },
    ];
  }

  /**
   * Return the columns that are shown at first: the first loss, another measure of quality, and metadata that differs.
   * @param {Column[]} all
   * @param {Run[]} rows
   */
  function defaultsOf(all, rows) {
    const ranked = all.filter(({ key }) => key.startsWith("best ")).map(({ key }) => key.slice(5));
    const first = ranked.slice(0, 1);
    const accuracy = ranked.filter((key) => rankOf(key, false) === 1).slice(0, 1);
    const differing = metadataKeys(rows).filter(({ differs }) => differs).slice(0, MOST_METADATA).map(({ key }) => `meta ${key}`);
    return ["state", "steps", ...[...first, ...accuracy].flatMap((key) => [`last ${key}`, `best ${key}`]), ...differing, "started", "duration",
      ...(rows.some(({ findings }) => findings) ? ["findings"] : [])];
  }

  return { show };
}

/** @param {Column[]} all @param {string} key @param {Run} run */
function valueOf(all, key, run) {
  return all.find((column) => column.key === key)?.value(run);
}

/** @param {ScalarRow | undefined} row */
function bestIn(row) {
  return row ? bestOf(row) : null;
}

/** @param {number | null | undefined} value */
function numberOf(value) {
  return Number.isNaN(value ?? 0) || Math.abs(value ?? 0) === Infinity ? h("span", { class: "bad" }, number(value)) : number(value);
}

/** @param {any[]} values */
function meanOf(values) {
  const finite = values.filter((value) => typeof value === "number" && Number.isFinite(value));
  return finite.length ? number(finite.reduce((sum, value) => sum + value, 0) / finite.length) : "";
}
