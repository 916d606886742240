/** Completion in a field for SQL. */

import { fill, h } from "./dom.js";

const MOST = 8;

/** Offer completions below a field. @param {HTMLElement} parent @param {HTMLTextAreaElement} box @param {() => SqlView[]} views */
export function completing(parent, box, views) {
  const list = h("ul", { class: "completions", role: "listbox", hidden: true });
  parent.append(list);
  /** @type {string[]} */
  let offered = [];
  let chosen = 0;

  const start = () => box.value.slice(0, box.selectionStart).search(/\w*$/);
  const hide = () => { list.hidden = true; };

  function offer() {
    const word = box.value.slice(start(), box.selectionStart);
    offered = word.length < 2 ? [] : completions(word, box.value, views());
    chosen = 0;
    list.hidden = !offered.length;
    drawList();
  }

  function drawList() {
    fill(list, ...offered.map((text, i) => h("li", { role: "option", "aria-selected": String(i === chosen), onpointerdown: (event) => { event.preventDefault(); accept(text); } }, text)));
  }

  /** @param {string} text */
  function accept(text) {
    box.setRangeText(text, start(), box.selectionStart, "end");
    hide();
  }

  box.addEventListener("input", offer);
  box.addEventListener("blur", hide);
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey) hide();
    if (list.hidden) return;
    if (event.key === "Tab") accept(offered[chosen]);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : offered.length - 1)) % offered.length;
      drawList();
    } else if (event.key === "Escape") {
      hide();
      event.stopPropagation();
    } else return;
    event.preventDefault();
  });
}

/** Return what a word may become, first columns of the views that the query names. @param {string} word @param {string} query @param {SqlView[]} views */
function completions(word, query, views) {
  const named = views.filter(({ name }) => new RegExp(`\\b${name}\\b`).test(query));
  const all = [...named.flatMap(({ columns }) => columns), ...views.map(({ name }) => name), ...views.flatMap(({ columns }) => columns)];
  const lower = word.toLowerCase();
  return [...new Set(all)].filter((each) => each.toLowerCase().startsWith(lower) && each !== word).slice(0, MOST);
}
