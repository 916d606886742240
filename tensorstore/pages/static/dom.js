/** Elements made by code. A string is always text, so no name of a run becomes markup. */

import { count, inOrder, number, printable, textOf } from "./format.js";
import { REPLACE, go, state } from "./state.js";

/** Rows of a table or a list at first: browsers are slow with thousands. */
export const MOST_ROWS = 300;

/** Return a new element with attributes, listeners (`onclick`) and children; strings become text. @type {MakeElement} */
export const h = (tag, attributes = {}, ...children) => made(document.createElement(tag), attributes, children);

/** @template {Element} T @param {T} element @param {Record<string, any>} attributes @param {Child[]} children */
function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : name === "title" ? printable(value) : String(value));
  }
  append(element, children);
  return element;
}

/** Append children but null, undefined and false. @param {Element} element @param {Child[]} children */
function append(element, children) {
  for (const child of children.flat()) {
    if (child != null && child !== false) element.append(child instanceof Node ? child : printable(String(child)));
  }
}

/** Return an element of SVG. @param {string} tag @param {Record<string, any>} attributes @param {...Child} children */
export const s = (tag, attributes, ...children) => made(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** Return the data of a path of SVG through points; null breaks it. @param {([number, number] | null)[]} points */
export const pathOf = (points) => points.map((each, i) => each ? `${points[i - 1] ? "L" : "M"}${each.map((at) => Number(at.toFixed(1)))}` : "").join("");

/** Return what makes elements of one class. @template {"span" | "p" | "div"} K @param {K} tag @param {string} kind */
const makerOf = (tag, kind) => (/** @type {Child[]} */ ...children) => h(tag, { class: kind }, ...children);
export const quiet = makerOf("span", "quiet");
export const bad = makerOf("span", "bad");
export const note = makerOf("p", "quiet");
export const toolbar = makerOf("div", "tools");
export const named = makerOf("span", "name");
/** What is said instead of something else. */
export const message = makerOf("p", "message");

/** Return what is seen until something has come. @param {number} height pixels */
export function skeleton(height) {
  const box = h("div", { class: "skeleton", "aria-hidden": "true" });
  box.style.height = `${height}px`;
  return box;
}

/** Return what says an error. @param {unknown} error */
export const failure = (error) => h("p", { class: "error", role: "alert" }, error instanceof Error ? error.message : String(error));

/** Return a name that lines break between its parts. @param {string} name */
export const breakable = (name) => name.split(/(?<=[/._ -])|(?<=[a-z])(?=[A-Z])/).flatMap((part) => part.match(/[^]{1,14}/gu) ?? []).flatMap((part) => [part, document.createElement("wbr")]);

/** Return a text of two lines at most. @param {string} text */
export const clipped = (text) => h("span", { class: text.length > 24 && "clip", title: text }, text);

/** @param {Element} element */
const nameOf = (element) => element.getAttribute("aria-label") ?? (element.getAttribute("title") || element.textContent);

/** Return what focuses the same control once an element is drawn again, else the view. @param {Element} element */
export function keepFocus(element) {
  const used = /** @type {any} */ (document.activeElement);
  const alike = () => [...element.querySelectorAll(used.localName)].filter((each) => nameOf(each) === nameOf(used));
  const at = element.contains(used) ? alike().indexOf(used) : null;
  return () => {
    if (at === null || !document.activeElement?.matches("body, main")) return;
    const again = /** @type {any} */ (alike()[at] ?? document.querySelector("main"));
    again.focus({ preventScroll: true });
    if (again.type !== "search") return;
    again.value = used.value;
    again.setSelectionRange(used.selectionStart, used.selectionEnd);
  };
}

/** Replace the content of an element. A used control keeps its focus. @param {Element} element @param {...Child} children */
export function fill(element, ...children) {
  const refocus = keepFocus(element);
  element.replaceChildren();
  append(element, children);
  refocus();
}

/** Return what is typed or chosen, with its label. @param {string} label @param {Child} box @param {string} [hint] */
export const field = (label, box, hint) => h("label", { class: "field", title: hint }, h("span", {}, label), box);

/** Return a labeled drop-down list. @type {Select} */
export function select(label, options, value, onchange, hint) {
  const list = h("select", { "aria-label": label, onchange: () => onchange(list.value) }, options.map((option) => {
    const [each, text = each] = [option].flat();
    return h("option", { value: each, selected: each === value }, text);
  }));
  return field(label, list, hint);
}

/** Return a labeled check box. @param {string} label @param {boolean} checked @param {(checked: boolean) => void} onchange */
export function checkbox(label, checked, onchange) {
  const box = h("input", { type: "checkbox", checked, "aria-label": label, onchange: () => onchange(box.checked) });
  return h("label", { class: "field check" }, box, h("span", {}, label));
}

/** Return a labeled text field that reports after a pause in typing. @type {Textbox} */
export function textbox(label, value, onchange, placeholder) {
  let timer = 0;
  const box = h("input", {
    type: "search", value, placeholder, "aria-label": label,
    oninput: () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => onchange(box.value), 250);
    },
  });
  return field(label, box);
}

/** Return a table whose header cells sort it; the state says by which. @template T @param {Table<T>} table */
export function table({ columns, rows, sort: first = "", attributes, empty = "No rows.", summary }) {
  const sort = state().sort ?? first;
  const descending = sort.startsWith("-");
  const sorting = columns.find((column) => column.key && column.title === sort.replace(/^-/, ""));
  const ordered = sorting ? sortRows(rows, /** @type {any} */ (sorting.key), descending) : rows;
  const head = columns.map((column) => {
    const here = column === sorting;
    const next = here && !descending ? `-${column.title}` : column.title;
    const button = column.key
      ? h("button", { class: "sort", title: column.hint ?? `Sort by ${column.title}`, onclick: () => go({ sort: next }, REPLACE) },
          breakable(column.title + (here ? `\u00a0${descending ? "▼" : "▲"}` : "")))
      : breakable(column.title);
    return h("th", { class: column.number && "number", scope: "col", title: column.hint }, button);
  });
  const most = state().all ? ordered.length : MOST_ROWS;
  const body = h("tbody", {}, ordered.slice(0, most).map((row) =>
    h("tr", attributes?.(row), columns.map((column) => h("td", { class: column.number && "number" }, cellOf(column, row))))));
  if (summary) body.append(h("tr", { class: "summary" }, ...summary.map((each, i) => h("td", { class: columns[i].number && "number" }, each))));
  if (ordered.length > most) body.append(h("tr", {}, h("td", { colspan: columns.length }, h("button", { class: "plain", onclick: () => go({ all: 1 }, REPLACE) }, `show all ${count(ordered.length)} rows`))));
  if (!ordered.length) body.append(h("tr", {}, h("td", { colspan: columns.length, class: "quiet" }, empty)));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head)), body));
}

/** @template T @param {TableColumn<T>} column @param {T} row */
function cellOf({ number: numeric, key, cell }, row) {
  const value = key?.(row);
  return cell ? cell(row) : !numeric ? textOf(value) : Number.isFinite(value ?? 0) ? number(value) : bad(number(value));
}

/** Return rows sorted by a key, those without one last. @template T @param {T[]} rows @param {(row: T) => any} key @param {boolean} descending */
function sortRows(rows, key, descending) {
  const sign = descending ? -1 : 1;
  const absent = (/** @type {any} */ value) => value == null || Number.isNaN(value);
  return [...rows].sort((left, right) => {
    const [a, b] = [key(left), key(right)];
    if (absent(a) || absent(b)) return Number(absent(a)) - Number(absent(b));
    if (typeof a === "string" || typeof b === "string") return sign * inOrder(String(a), String(b));
    return sign * (a < b ? -1 : a > b ? 1 : 0);
  });
}
