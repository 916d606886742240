/** The one tooltip of the page, which never covers what it explains. */

import { fill, h } from "./dom.js";

/** Show a text next to a place of the window; null hides it. @param {TooltipContent | null} content @param {number} [x] @param {number} [y] */
export function tooltip(content, x = 0, y = 0) {
  const tip = /** @type {HTMLElement} */ (document.getElementById("tooltip"));
  tip.hidden = content === null;
  if (!content) return;
  fill(tip, h("div", { class: "name" }, content.title),
    h("dl", {}, ...(content.rows ?? []).flatMap(([term, value, mark, near]) => [h("dt", { class: near && "near" }, mark, term), h("dd", { class: near && "near" }, value)])),
    content.note && h("div", { class: "quiet" }, content.note));
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = `${x + 16 + width < innerWidth ? x + 16 : Math.max(4, x - width - 16)}px`;
  tip.style.top = `${y + 16 + height < innerHeight ? y + 16 : Math.max(4, Math.min(y - height - 12, innerHeight - height - 4))}px`;
}
