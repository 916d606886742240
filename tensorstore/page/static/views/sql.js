/** SQL: named queries with their parameters, and a query of one's own. */

import { loadQueries, runNamed, runSql } from "../api.js";
import { draw } from "../chart.js";
import { chosenRun } from "../choice.js";
import { checkbox, fill, h, select, table } from "../dom.js";
import { counted, number, printable } from "../format.js";
import { go, state } from "../state.js";

const EXAMPLE = "select name, mode, count(*) as steps, max(mode_step) as last_step\nfrom tensors\ngroup by all\norder by name";

/** @type {import("../app.js").ViewMaker} */
export function sql(root, page) {
  const tools = h("div", { class: "tools" });
  const box = h("textarea", { "aria-label": "SQL", spellcheck: "false" });
  const actions = h("div", { class: "tools" });
  const body = h("div", {});
  root.append(tools, box, actions, body);
  /** @type {NamedQuery[]} */
  let queries = [];

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
    fill(actions, h("button", { onclick: submit, disabled: page.info.frozen }, "Run"), page.info.runs.length > 1 && !named && select("of", [{ value: "", text: "the chosen run" }, { value: "all", text: "all runs" }], now.of ?? "", (of) => go({ of })),
      h("span", { class: "quiet" }, "Ctrl+Enter. Views: tensors, reductions, scalars, steps, collections, findings, tensor_values", now.of && !named ? ", runs; each with the column run." : "."));
    if (page.info.frozen) fill(body, h("p", { class: "message" }, "A report answers no queries: open the run by tensortrial page."));
    else if (now.query || now.sql) await run(now);
    else fill(body, h("p", { class: "message" }, "Choose a named query, or write a SELECT and run it. It can read the run and change nothing."));
  }

  /**
   * @param {NamedQuery | undefined} named
   * @param {State} now
   */
  function drawTools(named, now) {
    fill(tools, select("named query", [{ value: "", text: "a query of my own" }, ...queries.map(({ name }) => ({ value: name, text: name.replaceAll("_", " ") }))], now.query ?? "",
      (query) => go({ query, sql: null, params: null, sort: null })), named && h("span", { class: "quiet" }, printable(named.about)));
    if (!named) return;
    const given = /** @type {Record<string, string>} */ (JSON.parse(now.params ?? "{}"));
    for (const parameter of named.parameters) {
      const field = h("input", { type: "search", value: given[parameter.name] ?? parameter.value ?? "", placeholder: parameter.type, "aria-label": parameter.name,
        onchange: () => go({ params: JSON.stringify({ ...given, [parameter.name]: field.value }) }, { replace: true }) });
      tools.append(h("label", { class: "field", title: parameter.about }, h("span", {}, parameter.name), field));
    }
  }

  /** @param {State} now */
  async function run(now) {
    fill(body, h("p", { class: "quiet" }, "Running …"));
    const name = chosenRun(page.info, now).name;
    try {
      const answer = now.query ? await runNamed(name, now.query, JSON.parse(now.params ?? "{}")) : await runSql(name, now.sql, now.of);
      drawAnswer(answer, now);
    } catch (error) {
      fill(body, h("p", { class: "error", role: "alert" }, printable(error instanceof Error ? error.message : String(error)).replaceAll("\\u000a", "\n")));
    }
  }

  /**
   * @param {Answer} answer
   * @param {State} now
   */
  function drawAnswer(answer, now) {
    const numeric = answer.columns.map((_, i) => answer.rows.length > 0 && answer.rows.every((row) => row[i] === null || typeof row[i] === "number"));
    const plottable = answer.columns.filter((_, i) => numeric[i]);
    const plot = h("div", {});
    fill(body,
      h("div", { class: "tools" }, h("span", { class: "quiet" }, counted(answer.rows.length, "row"), answer.more && " (there are more; add a limit or a condition)"),
        plottable.length > 1 && checkbox("plot", now.plot === "1", (on) => go({ plot: on ? "1" : null }, { replace: true })),
        plottable.length > 1 && now.plot === "1" && select("x", plottable.map((value) => ({ value, text: printable(value) })), now.px ?? plottable[0], (px) => go({ px }, { replace: true }))),
      plot,
      table({ rows: answer.rows, sort: now.sort ?? "", onsort: (sort) => go({ sort }, { replace: true }),
        columns: answer.columns.map((title, i) => ({ title: printable(title), number: numeric[i], key: (/** @type {any[]} */ row) => row[i], cell: (/** @type {any[]} */ row) => cell(row[i]) })) }));
    if (now.plot === "1" && plottable.length > 1) drawPlot(plot, answer, plottable, now);
  }

  /**
   * @param {HTMLElement} plot
   * @param {Answer} answer
   * @param {string[]} plottable
   * @param {State} now
   */
  function drawPlot(plot, answer, plottable, now) {
    const x = answer.columns.indexOf(now.px && plottable.includes(now.px) ? now.px : plottable[0]);
    const rows = answer.rows.filter((row) => row[x] !== null).sort((a, b) => a[x] - b[x]);
    const lines = plottable.filter((title) => title !== answer.columns[x]).slice(0, 8)
      .map((title, color) => ({ label: title, color, points: rows.length < 100, values: rows.map((row) => row[answer.columns.indexOf(title)]) }));
    draw(plot, { x: rows.map((row) => row[x]), lines, unit: "number", height: 260 });
  }

  return { show, grow: () => {} };
}

/** @param {any} value */
function cell(value) {
  if (value === null || value === undefined) return h("span", { class: "quiet" }, "null");
  if (typeof value === "number") return number(value);
  return h("span", { class: "name" }, printable(typeof value === "string" ? value : JSON.stringify(value)));
}
