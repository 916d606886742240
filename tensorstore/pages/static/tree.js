/** Tensors as rows: in order, or folded by the path of their module. */

/** Return one row for each tensor. @param {string[]} names @returns {Line[]} */
export const flat = (names) => names.map((name, i) => ({ row: { text: name, key: name, level: 0, kind: "tensor" }, members: [i] }));

/** Return the tree of the modules of tensors. @param {string[]} names */
export function treeOf(names) {
  const root = node("", "");
  names.forEach((name, i) => {
    let at = root;
    let end = 0;
    for (const part of name.split(/[./]/).filter(Boolean)) {
      const path = at.path ? `${at.path}/${part}` : part;
      end = name.indexOf(part, end) + part.length;
      let next = at.children.get(part);
      if (!next) at.children.set(part, (next = node(name.slice(0, end), path)));
      next.members.push(i);
      at = next;
    }
    at.tensor = i;
  });
  return root;
}

/** Return rows with modules folded below a depth. @param {string[]} names @param {number} depth modules this deep are folded @param {Set<string>} toggled paths of modules that are the other way round @returns {Line[]} */
export function folded(names, depth, toggled) {
  const root = treeOf(names);
  /** @type {Line[]} */
  const lines = [];
  for (const child of root.children.values()) walk(child, 0, 1);
  return lines;

  /** @param {Branch} at @param {number} level @param {number} deep */
  function walk(at, level, deep) {
    const text = at.name;
    if (!at.children.size) {
      lines.push({ row: { text, key: names[at.tensor], level, kind: "tensor" }, members: [at.tensor] });
      return;
    }
    if (at.children.size === 1 && at.tensor < 0) return walk([...at.children.values()][0], level, deep);
    const fold = deep >= depth !== toggled.has(at.path);
    lines.push({ row: { text: fold ? `${text} (${at.members.length})` : text, key: at.path, level, kind: fold ? "folded" : "open" }, members: at.members });
    if (fold) return;
    if (at.tensor >= 0) lines.push({ row: { text, key: names[at.tensor], level: level + 1, kind: "tensor" }, members: [at.tensor] });
    for (const child of at.children.values()) walk(child, level + 1, deep + 1);
  }
}

/** @param {string} name @param {string} path @returns {Branch} */
const node = (name, path) => ({ name, path, children: new Map(), members: [], tensor: -1 });
