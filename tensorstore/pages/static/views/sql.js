/** SQL: named queries with their parameters, and a query of one's own. */

import { loadQueries, loadViews, runNamed, runSql } from "../api.js";
import { chosenRun, tickedRuns } from "../choice.js";
import { completing } from "../completion.js";
import { fill, h, message, note, quiet, select, table, toolbar } from "../dom.js";
import { saveCsv } from "../download.js";
import { counted, textOf } from "../format.js";
import { REPLACE, go, state } from "../state.js";

const EXAMPLE = "select name, mode, count(*) as steps, max(mode_step) as last_step\nfrom tensors\ngroup by all\norder by name";
const HISTORY = "tensortrial queries";
const MOST_KEPT = 30;

/** @type {ViewMaker} */
export function sql(root, page) {
  const tools = toolbar();
  const box = h("textarea", { "aria-label": "SQL", spellcheck: "false", autocapitalize: "off", autocomplete: "off" });
  const editor = h("div", { class: "editor" }, box);
  const actions = toolbar();
  const schema = h("div", {});
  const body = h("div", {});
  root.append(tools, editor, actions, schema, body);
  /** @type {NamedQuery[]} */
  let queries = [];
  /** @type {{name: string, columns: string[]}[]} */
  let views = [];
  completing(editor, box, () => views);

  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
  });

  function submit() {
    const now = state();
    const same = box.value === now.sql && !now.query;
    go({ sql: box.value, query: null, sort: null });
    if (same) void run(state());
  }

  /** @param {State} now */
  async function show(now) {
    if (!queries.length) queries = await loadQueries();
    const named = queries.find((query) => query.name === now.query);
    drawTools(named, now);
    box.value = named ? named.sql : now.sql ?? EXAMPLE;
    box.readOnly = page.info.frozen;
    drawActions(named, now);
    if (page.info.frozen) {
      fill(body, message("A report answers no queries: open the run by tensortrial page."));
      return;
    }
    if (!views.length) void loadViews(chosenRun(page.info, now).name).then((found) => { views = found; drawSchema(); }, () => {});
    if (now.query || now.sql) await run(now);
    else fill(body, message("Choose a named query, or write a SELECT and run it."));
  }

  /** @param {NamedQuery | undefined} named @param {State} now */
  function drawActions(named, now) {
    const many = page.info.runs.length > 1;
    const kept = history();
    fill(actions, h("button", { onclick: submit, disabled: page.info.frozen, title: "Ctrl+Enter" }, "Run"),
      many && !named && select("of", [{ value: "", text: "the ticked runs" }, { value: "one", text: `only ${chosenRun(page.info, now).name}` }, { value: "all", text: "all runs" }], now.of ?? "", (of) => go({ of }),
        "The views of several runs have the column run, and there is the view runs."),
      kept.length > 0 && select("history", [{ value: "", text: "earlier queries" }, ...kept.map((value) => ({ value, text: value.replace(/\s+/g, " ").slice(0, 80) }))], "", (text) => { if (text) go({ sql: text, query: null, sort: null }); }),
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

  /** @param {NamedQuery | undefined} named @param {State} now */
  function drawTools(named, now) {
    fill(tools, select("named query", [{ value: "", text: "a query of my own" }, ...queries.map(({ name }) => ({ value: name, text: name.replaceAll("_", " ") }))], now.query ?? "",
      (query) => go({ query, sql: null, params: null, sort: null })), named && quiet(named.about));
    if (!named) return;
    const given = /** @type {Record<string, string>} */ (JSON.parse(now.params ?? "{}"));
    for (const parameter of named.parameters) {
      const field = h("input", { type: "search", value: given[parameter.name] ?? parameter.value ?? "", placeholder: parameter.type, "aria-label": parameter.name,
        onchange: () => go({ params: JSON.stringify({ ...given, [parameter.name]: field.value }) }, REPLACE) });
      tools.append(h("label", { class: "field", title: parameter.about }, h("span", {}, parameter.name), field));
    }
  }

  /** @param {State} now */
  async function run(now) {
    fill(body, note("Running …"));
    const name = chosenRun(page.info, now).name;
    const of = now.of === "all" ? null : page.info.runs.length === 1 || now.of === "one" ? [name] : tickedRuns(page.info, now).map((each) => each.name);
    if (of?.length === 0) {
      fill(body, message("No run is ticked in the list of runs."));
      return;
    }
    try {
      const answer = now.query ? await runNamed(name, now.query, JSON.parse(now.params ?? "{}")) : await runSql(of, now.sql);
      if (!now.query) keep(now.sql);
      drawAnswer(answer, now);
    } catch (error) {
      fill(body, h("p", { class: "error", role: "alert" }, error instanceof Error ? error.message : String(error)));
    }
  }

  /** @param {Answer} answer @param {State} now */
  function drawAnswer(answer, now) {
    const numeric = answer.columns.map((_, i) => answer.rows.length > 0 && answer.rows.every((row) => row[i] === null || typeof row[i] === "number"));
    fill(body,
      toolbar(quiet(counted(answer.rows.length, "row"), answer.more && " (there are more; add a limit or a condition)"),
        answer.rows.length > 0 && h("button", { onclick: () => saveCsv(now.query ?? "query", answer.columns, answer.rows) }, "CSV")),
      h("div", { class: "mono" }, table({ rows: answer.rows, sort: now.sort ?? "", onsort: (sort) => go({ sort }, REPLACE),
        columns: answer.columns.map((title, i) => ({ title, number: numeric[i], key: (/** @type {any[]} */ row) => row[i], cell: (/** @type {any[]} */ row) => row[i] === null ? quiet("null") : textOf(row[i]) })) })));
  }

  return { show, grow: () => {} };
}

/** Return the queries that this browser ran on this page, the newest first. @returns {string[]} */
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
