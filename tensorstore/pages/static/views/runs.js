/** Runs: all of them as a table. */

import { load, loadScalarTable, saveNotes, unlessMissing } from "../api.js";
import { colorsOf, listOf, metadataKeys, runLink, tickedNames, tickedRuns } from "../choice.js";
import { checkbox, clipped, fill, h, message, named, select, table, textbox, toolbar } from "../dom.js";
import { inOneSentence } from "../diagnosis.js";
import { saveCsv } from "../download.js";
import { contains, count, counted, date, duration, number, size, textOf } from "../format.js";
import { parallel, scatter } from "../hyperparameters.js";
import { bestOf, isHeldOut, rankOf } from "../scalars.js";
import { groupsOf, listedRuns, marksOf, stroke } from "../side.js";
import { REPLACE, announce, go, link } from "../state.js";

const [MOST_METADATA, MOST_NAMED] = [6, 8];

/** @type {ViewMaker} */
export function runs(root, page) {
  const tools = toolbar();
  const plot = h("div");
  const body = h("div");
  const diagnoses = h("div");
  root.append(diagnoses, tools, plot, body);
  /** @type {Record<string, number>} */
  let sizes = {};
  /** @type {ScalarRow[]} */
  let scalars = [];
  /** @type {State} */
  let now = {};
  let sought = ""; // in the titles of columns

  /** @param {State} wanted */
  async function show(wanted) {
    now = wanted;
    draw();
    if (page.info.frozen && !diagnoses.childElementCount) await drawDiagnoses();
    if (!scalars.length || listOf(now.cols).includes("size")) await grow();
  }

  async function grow() {
    scalars = await loadScalarTable();
    if (listOf(now.cols).includes("size")) sizes = await unlessMissing(load("sizes")) ?? sizes;
    draw();
  }

  /** Say what went wrong in the runs of a report, a sentence for each. */
  async function drawDiagnoses() {
    /** @type {string[]} */
    const well = [];
    for (const run of page.info.runs) {
      const found = await unlessMissing(load("diagnosis", run.name));
      if (!found) continue;
      if (found.problems.every((each) => each.note)) well.push(run.name);
      else diagnoses.append(...inOneSentence(run, found, named(run.name), ": "));
    }
    if (well.length) diagnoses.append(h("div", { class: "diagnosed well" }, h("b", {}, "No problem found"), well.length > MOST_NAMED ? ` in ${counted(well.length, "run")}` : [" in ", named(well.join(", "))]));
  }

  function draw() {
    const rows = listedRuns(page.info, now);
    const all = columnsOf(rows);
    const chosen = now.cols === undefined ? defaultsOf(all, rows) : listOf(now.cols);
    const columns = all.filter(({ key }) => chosen.includes(key));
    drawPlot(all, rows);
    drawTable(columns, rows);
    const shown = now.cols === undefined ? fitting(columns) : columns;
    if (shown.length < columns.length) drawTable(shown, rows);
    drawTools(all, shown, rows);
  }

  /** Return the columns that fit: a metric goes before metadata and times. @param {Column[]} columns */
  function fitting(columns) {
    const heads = body.querySelectorAll("th");
    let beyond = Math.max(...[...body.querySelectorAll(".scroll")].map((box) => box.scrollWidth - box.clientWidth));
    const out = columns.map((column, i) => ({ column, width: heads[i + 1].offsetWidth })).reverse().filter(({ column }) => /^(meta |steps|started|duration)/.test(column.key))
      .filter(({ width }) => { beyond -= width; return beyond + width > 0; }).map(({ column }) => column);
    return columns.filter((column) => !out.includes(column));
  }

  /** @param {Column[]} columns @param {Run[]} rows */
  function drawTable(columns, rows) {
    const ticked = tickedNames(page.info, now);
    const color = colorsOf(page.info, now);
    fill(body, ...groupsOf(rows, now).flatMap(([group, members]) => [group && h("h3", { class: "group" }, group), table({
      rows: members, empty: "No run matches.",
      attributes: (run) => ({ class: now.runs !== undefined && ticked.includes(run.name) && "chosen" }),
      columns: [
        { title: "run", key: (run) => run.name, cell: (run) => h("span", { class: "runname" }, stroke(color(run.name)), h("a", { class: "name", href: runLink(run.name, null) }, run.name),
          ...marksOf(run)) },
        ...columns.map(({ value, ...column }) => ({ ...column, key: value })),
      ],
      summary: members.length > 1 && now.group ? ["mean", ...columns.map((column) => column.number ? meanOf(members.map(column.value)) : "")] : undefined,
    })]));
    if (page.info.damaged.length) {
      body.append(h("h3", {}, "Could not be opened"), ...page.info.damaged.map((text) => h("p", { class: "error" }, text)));
    }
  }

  /** @param {Column[]} all @param {Column[]} columns @param {Run[]} rows */
  function drawTools(all, columns, rows) {
    const open = tools.querySelector("details")?.open;
    const shown = columns.map(({ key }) => key);
    const ticked = now.runs === undefined ? [] : tickedRuns(page.info, now);
    const boxes = all.map(({ key, title }) => checkbox(title, shown.includes(key),
      (on) => go({ cols: on ? [...shown, key] : shown.filter((each) => each !== key) }, REPLACE)));
    const seek = (/** @type {string} */ text) => {
      sought = text;
      for (const box of boxes) box.hidden = !contains(box.textContent, text);
    };
    seek(sought);
    fill(tools,
      page.info.runs.length > 1 && select("plot", [["", "none"], ["scatter", "scatter"], ["parallel", "parallel coordinates"]], now.plot ?? "", (to) => go({ plot: to })),
      h("details", { class: "chooser", open }, h("summary", {}, `columns: ${shown.length} of ${all.length}`), h("div", {}, textbox("search columns", sought, seek), ...boxes)),
      page.info.editable && ticked.length > 0 && h("button", { title: "Archived runs are in no list until you show them. What the job wrote stays as it is.", onclick: () => archive(ticked) }, `${ticked.every((run) => run.archived) ? "Unarchive" : "Archive"} the ${count(ticked.length)} ticked`),
      ticked.length > 0 && ticked.length < page.info.runs.length && h("button", { title: "Leave them out of the table and the list", onclick: () => go({ hidden: [...listOf(now.hidden), ...ticked.map(({ name }) => name)], runs: null }) }, `Hide the ${count(ticked.length)} ticked`),
      ticked.length === 2 && h("a", { href: link({ view: "compare", a: ticked[1].name, b: ticked[0].name }) }, "Compare the two →"),
      h("button", { onclick: () => saveCsv("runs", ["run", ...columns.map(({ title }) => title)], rows.map((run) => [run.name, ...columns.map((column) => column.value(run))])) }, "CSV"));
  }

  /** @param {Run[]} runs */
  async function archive(runs) {
    const archived = !runs.every((run) => run.archived);
    for (const run of runs) await saveNotes(run, { archived });
    go({ runs: null, archived: archived ? null : "1" });
    announce();
  }

  /** Return a field that is saved with the run. @param {Run} run @param {string} label @param {string} value @param {(text: string) => Notes} change */
  function noted(run, label, value, change) {
    if (!page.info.editable) return value;
    return h("input", { class: "noted", value, "aria-label": `${label} of ${run.name}`, placeholder: label, onchange: (/** @type {any} */ { target }) => saveNotes(run, change(target.value)).then(announce, page.fail) });
  }

  /** @param {Column[]} all @param {Run[]} rows */
  function drawPlot(all, rows) {
    fill(plot);
    if (!now.plot) return;
    const metrics = all.filter(({ key }) => key.startsWith("last ") || key.startsWith("best "));
    const parameters = all.filter(({ key, value }) => key.startsWith("meta ") && new Set(rows.map((run) => textOf(value(run)))).size > 1);
    if (!metrics.length || !parameters.length) return fill(plot, message("Nothing to plot: it needs a scalar, and metadata that differs between runs."));
    const y = metrics.find(({ key }) => key === now.py) ?? metrics.find(({ key }) => key.startsWith("best ")) ?? metrics[0];
    const x = parameters.find(({ key }) => key === now.px) ?? parameters[0];
    const options = (/** @type {Column[]} */ columns) => columns.map(({ key, title }) => [key, title]);
    const color = colorsOf(page.info, now);
    const open = (/** @type {Run} */ run) => go({ view: "overview", run: run.name });
    fill(plot, toolbar(
      now.plot === "scatter" && select("x", options(parameters), x.key, (px) => go({ px }, REPLACE)),
      select(now.plot === "scatter" ? "y" : "metric", options(metrics), y.key, (py) => go({ py }, REPLACE))));
    plot.append(now.plot === "scatter" ? scatter({ runs: rows, x, y, color, open }) : parallel({ runs: rows, columns: [...parameters.slice(0, 8), y], open }));
  }

  /** @param {Run[]} rows @returns {Column[]} */
  function columnsOf(rows) {
    /** @type {Map<string, Map<string, ScalarRow>>} */
    const found = new Map();
    const listed = new Set(rows.map(({ name }) => name));
    for (const row of scalars.filter(({ run }) => listed.has(run))) {
      const key = `${row.name}${row.mode === "TRAIN" || row.mode === "GLOBAL" ? "" : ` · ${row.mode}`}`;
      const of = found.get(key) ?? new Map();
      found.set(key, of.set(row.run, row));
    }
    const losses = new Set(scalars.filter(({ loss }) => loss).map(({ name }) => name));
    const rankIn = (/** @type {Map<string, ScalarRow>} */ of) => {
      const [{ name }] = of.values();
      return rankOf(name, losses.has(name));
    };
    const ranked = [...found].sort(([p, a], [q, b]) => rankIn(a) - rankIn(b) || b.size - a.size || Number(isOther(q)) - Number(isOther(p)));
    const seconds = (/** @type {Run} */ run) => run.started !== null && run.saved !== null ? Math.max(0, run.saved - run.started) / 1000 : null;
    return [
      { key: "state", title: "state", value: (run) => run.ended ? "ended" : "running" },
      { key: "findings", title: "findings", number: true, value: (run) => run.findings, cell: (run) => run.findings ? h("a", { class: "bad", href: link({ view: "findings", run: run.name }) }, count(run.findings)) : "0" },
      { key: "steps", title: "steps", number: true, value: (run) => run.steps, cell: (run) => count(run.steps) },
      { key: "started", title: "started", value: (run) => run.started, cell: (run) => h("span", { class: "date" }, date(run.started)) },
      { key: "duration", title: "duration", number: true, value: seconds, cell: (run) => duration(seconds(run)) },
      ...ranked.flatMap(/** @returns {Column[]} */ ([key, of]) => {
        const [{ name, mode }] = of.values();
        const title = mode === "EVAL" && !found.has(name) ? name : key;
        return [
          { key: `last ${key}`, title: `${title} last`, number: true, value: (run) => of.get(run.name)?.last.value },
          { key: `best ${key}`, title: `${title} best`, number: true, value: (run) => { const row = of.get(run.name); return row && bestOf(row); } },
        ];
      }),
      ...metadataKeys(rows).map(/** @returns {Column} */ ({ key }) => ({ key: `meta ${key}`, title: key, number: rows.every((run) => typeof (run.metadata[key] ?? 0) === "number"), value: (run) => run.metadata[key], cell: (run) => clipped(textOf(run.metadata[key])) })),
      { key: "tags", title: "tags", value: (run) => run.tags.join(", "), cell: (run) => noted(run, "tags", run.tags.join(", "), (text) => ({ tags: text.split(",") })) },
      { key: "note", title: "note", value: (run) => run.note, cell: (run) => noted(run, "note", run.note, (note) => ({ note })) },
      { key: "workers", title: "workers", number: true, value: (run) => run.workers.length },
      { key: "size", title: "file size", number: true, value: (run) => sizes[run.name], cell: (run) => size(sizes[run.name]) },
      { key: "framework", title: "framework", value: (run) => run.framework },
    ];
  }

  /** Return the columns shown at first: a loss, another metric, metadata that differs. @param {Column[]} all @param {Run[]} rows */
  function defaultsOf(all, rows) {
    const ranked = all.filter(({ key }) => key.startsWith("best "));
    const without = (/** @type {Column} */ { value }) => rows.filter((run) => value(run) == null).length;
    const others = ranked.filter(({ key }) => rankOf(key.slice(5), false) === 1).sort((a, b) => without(a) - without(b));
    const metrics = [...ranked.slice(0, 1), ...others.slice(0, 1)].map(({ key }) => key.slice(5));
    const differing = metadataKeys(rows).filter(({ differs }) => differs).slice(0, MOST_METADATA).map(({ key }) => `meta ${key}`);
    return [...(rows.every(({ ended }) => ended) ? [] : ["state"]), "steps", "started", "duration", ...metrics.flatMap((key) => [`last ${key}`, `best ${key}`]), ...differing,
      ...(/** @type {const} */ (["tags", "note"])).filter((key) => rows.some((run) => run[key].length)),
      ...(rows.some(({ findings }) => findings) ? ["findings"] : [])];
  }

  return { show, grow };
}

/** Return whether a column is of validation or test data. @param {string} key */
const isOther = (key) => key.includes(" · ") || isHeldOut(key);

/** @param {any[]} values */
function meanOf(values) {
  const finite = values.filter(Number.isFinite);
  return finite.length ? number(finite.reduce((sum, value) => sum + value, 0) / finite.length) : "";
}
