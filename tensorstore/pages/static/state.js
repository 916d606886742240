/** What the page shows: all of it is in the fragment of its URL. */

/** Return the state that the URL holds. @returns {State} */
export const state = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/** Return the link to the state with some keys changed; null or "" removes a key, a list becomes JSON. @param {Record<string, any>} change @param {State} [base] */
export function link(change, base = state()) {
  const next = new URLSearchParams(base);
  for (const [key, value] of Object.entries(change)) {
    if (value == null || value === "") next.delete(key);
    else next.set(key, typeof value === "object" ? JSON.stringify(value) : String(value));
  }
  return `#${next.toString()}`;
}

/** How `go` changes the state without an entry in the history. */
export const REPLACE = { replace: true };

/** Change the state, and show it. @param {Record<string, any>} change of `link` @param {How} [how] */
export function go(change, { replace = false, quiet = false } = {}) {
  const hash = link(change);
  if (hash === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
  if (!quiet) announce();
}

/** Say that the state has changed, as the browser does when one goes back. */
export const announce = () => dispatchEvent(new Event("popstate"));
