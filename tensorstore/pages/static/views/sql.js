/** SQL: named queries and one's own. */

import { load, numberOf } from "../api.js";
import { draw, panel, together } from "../chart.js";
import { chosenRun, colorsOf, held, tickedNames } from "../choice.js";
import { completing } from "../completion.js";
import { isQuick } from "../diagnosis.js";
import { failure, field, fill, h, message, note, quiet, select, table, toolbar } from "../dom.js";
import { saveCsv } from "../download.js";
import { count, counted, grouped, textOf } from "../format.js";
import { REPLACE, go, state } from "../state.js";

const EXAMPLE = "select name, mode, count(*) as steps, max(mode_step) as last_step\nfrom tensors\ngroup by all\norder by all";
const OF_RUNS = "select run, steps, workers, tensor_bytes, file_bytes, started_at\nfrom runs\norder by started_at desc";
const HISTORY = "tensortrial queries";
const [MOST_KEPT, MOST_LINES] = [30, 40];

/** @type {ViewMaker} */
export function sql(root, page) {
  const tools = toolbar();
  const box = h("textarea", { "aria-label": "SQL", spellcheck: "false", autocapitalize: "off", autocomplete: "off" });
  const editor = h("div", { class: "editor" }, box);
  const actions = toolbar();
  const schema = h("div");
  const body = h("div");
  root.append(tools, editor, actions, schema, body);
  /** @type {NamedQuery[]} */
  let queries = [];
  /** @type {SqlView[]} */
  let views = [];
  let given = "";
  /** @type {{key: string, answer: Answer} | null} what needs no other query */
  let answered = null;
  let now = state();
  completing(editor, box, () => views);
  const put = (/** @type {string} */ text) => { if (text !== given) box.value = given = text; };

  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
  });

  function submit() {
    const same = box.value === now.sql && !now.query;
    answered = null;
    go({ sql: box.value, query: null, sort: null });
    if (same) void run();
  }

  /** @param {State} wanted */
  async function show(wanted) {
    now = wanted;
    const example = box.value !== given ? "" : chosenNames()?.length === 1 ? EXAMPLE : OF_RUNS;
    if (!now.query) put(now.sql ?? (example || given)); // one may type now
    if (!queries.length) queries = await load("queries");
    const named = queries.find((query) => query.name === now.query);
    drawTools(named);
    if (named) put(named.sql);
    box.readOnly = page.info.frozen;
    drawActions(named);
    if (page.info.frozen) return fill(body, message("A report answers no queries: open the run by tensortrial page."));
    if (!views.length) void load("views", chosenRun(page.info, now).name).then((found) => { views = found; drawSchema(); }, () => {});
    if (now.query || now.sql || (example && (example === OF_RUNS || isQuick(chosenRun(page.info, now))))) await run(example);
    else fill(body, message("Choose a query, or write one and run it."));
  }

  /** @param {NamedQuery | undefined} named */
  function drawActions(named) {
    const many = page.info.runs.length > 1;
    const kept = history();
    fill(actions, h("button", { onclick: submit, disabled: page.info.frozen }, "Run"),
      many && !named && select("of", [["", "the ticked runs"], ["one", `only ${chosenRun(page.info, now).name}`], ["all", "all runs"]], now.of ?? "", (of) => go({ of }),
        "The views of several runs have the column run, and there is the view runs."),
      kept.length > 0 && select("history", [["", "earlier queries"], ...kept.map((value) => [value, value.replace(/\s+/g, " ").slice(0, 80)])], "", (text) => { if (text) go({ sql: text, query: null, sort: null }); }),
      quiet("Ctrl+Enter runs it; Tab completes a view or a column."));
  }

  function drawSchema() {
    const open = schema.querySelector("details")?.open ?? false;
    const insert = (/** @type {string} */ text) => { box.setRangeText(text, box.selectionStart, box.selectionEnd, "end"); box.focus(); };
    const word = (/** @type {string} */ text) => h("button", { class: "plain", onclick: () => insert(text) }, text);
    fill(schema, h("details", { open }, h("summary", {}, "Views and their columns"),
      h("dl", { class: "schema" }, ...views.flatMap(({ name, columns }) => [h("dt", { class: "name" }, word(name)),
        h("dd", { class: "name" }, ...columns.flatMap((column, i) => [i > 0 && ", ", word(column)]))]))));
  }

  /** @param {NamedQuery | undefined} named */
  function drawTools(named) {
    fill(tools, select("named query", [["", "a query of my own"], ...queries.map(({ name }) => [name, name.replaceAll("_", " ")])], now.query ?? "",
      (query) => go({ query, sql: null, params: null, sort: null })), named && quiet(named.about));
    if (!named) return;
    const values = paramsOf();
    for (const parameter of named.parameters) {
      const box = h("input", { type: "search", value: values[parameter.name] ?? parameter.value ?? "", placeholder: parameter.type, "aria-label": parameter.name,
        onchange: () => go({ params: { ...values, [parameter.name]: box.value } }, REPLACE) });
      tools.append(field(parameter.name, box, parameter.about));
    }
  }

  /** @returns {Record<string, string>} */
  const paramsOf = () => ({ ...held(now.params) });

  /** Return the runs that are queried, null for all. */
  const chosenNames = () => now.of === "all" ? null : page.info.runs.length === 1 || now.of === "one" ? [chosenRun(page.info, now).name] : tickedNames(page.info, now);

  async function run(example = "") {
    const name = chosenRun(page.info, now).name;
    const of = chosenNames();
    if (of?.length === 0) return fill(body, message("No run is ticked in the list of runs."));
    const key = JSON.stringify([now.query, now.params, now.sql, of, name]);
    try {
      if (answered?.key !== key) {
        fill(body, note("Running …"));
        answered = { key, answer: await (now.query ? load("query", { run: name, query: now.query, parameters: paramsOf() }) : load("sql", { runs: of, sql: now.sql ?? example })) };
        if (now.sql) keep(now.sql);
      }
      drawAnswer(answered.answer);
    } catch (error) {
      fill(body, failure(error));
    }
  }

  /** @param {Answer} answer */
  function drawAnswer(answer) {
    const numeric = answer.columns.map((_, i) => answer.rows.length > 0 && answer.rows.every((row) => row[i] === null || typeof numberOf(row[i]) === "number"));
    const plot = h("div", { class: "plotted" });
    const about = toolbar(quiet(counted(answer.rows.length, "row"), answer.more && " (there are more; add a limit or a condition)"),
      answer.rows.length > 0 && h("button", { onclick: () => saveCsv(now.query ?? "query", answer.columns, answer.rows) }, "CSV"));
    fill(body, about, plot,
      h("div", { class: "mono" }, table({ rows: answer.rows,
        columns: answer.columns.map((title, i) => ({ title, number: numeric[i], key: (row) => row[i], cell: (row) => row[i] === null ? quiet("null") : textOf(row[i]) })) })));
    drawPlot(about, plot, answer, numeric, page.info, now);
  }

  return { show, grow: () => {} };
}

/** Draw a column of numbers over another one, a line for each combination of the texts. @type {DrawPlot} */
function drawPlot(tools, root, { columns, rows }, numeric, info, now) {
  const numbers = columns.filter((_, i) => numeric[i]);
  if (numbers.length < 2) return;
  const over = numbers.includes(now.px) ? now.px : numbers[0];
  const of = numbers.includes(now.py) ? now.py : "";
  tools.append(select("plot", [["", "nothing"], ...numbers], of, (py) => go({ py }, REPLACE)));
  if (!of) return;
  tools.append(select("over", numbers, over, (px) => go({ px }, REPLACE)));
  const [x, y] = [columns.indexOf(over), columns.indexOf(of)];
  const lines = grouped(rows.filter((row) => Number.isFinite(row[x])), (row) => row.filter((_, i) => !numeric[i]).map(textOf).join(", "));
  const drawn = [...lines].slice(0, MOST_LINES);
  const xs = drawn.map(([, points]) => points.map((row) => row[x]));
  const axis = together(xs);
  const color = colorsOf(info, now);
  const { box, body } = panel(`${of} over ${over}`, lines.size > drawn.length && `the first ${MOST_LINES} of ${count(lines.size)} lines`, true);
  root.append(box);
  draw(body, { x: axis.x, unit: "number", height: 260, logY: "", lines: drawn.map(([label, points], i) => ({ label: label || of,
    color: info.runs.some(({ name }) => name === label) ? color(label) : i, values: axis.spread(xs[i], points.map((row) => numberOf(row[y]))) })) });
}

/** Return the queries that this browser ran, the newest first. @returns {string[]} */
function history() {
  try {
    return JSON.parse(localStorage.getItem(HISTORY) ?? "[]");
  } catch {
    return [];
  }
}

/** @param {string} query */
function keep(query) {
  try {
    localStorage.setItem(HISTORY, JSON.stringify([query, ...history().filter((each) => each !== query)].slice(0, MOST_KEPT)));
  } catch {
    // a file has no storage
  }
}
