/** The answers of the server. Nothing else knows an address or a payload. */

import { link } from "./state.js";

const SPECIAL = new Map(["NaN", "Infinity", "-Infinity"].map((text) => [text, Number(text)]));
/** The keys of numbers, of which JSON lacks some. */
const NUMBERS = new Set("min max mean last value values observed threshold maxAbs".split(" "));

/** Return a value of JSON, a number for "NaN" and the like. @param {any} value */
export const numberOf = (value) => SPECIAL.get(value) ?? value;

/** @param {string} key @param {any} value */
const revived = (key, value) => !NUMBERS.has(key) ? value : Array.isArray(value) ? value.map(numberOf) : numberOf(value);

/** The answers of a report by address, without a resolution or a part. @type {Record<string, any> | null} */
const embedded = JSON.parse(document.getElementById("answers")?.textContent || "null", revived);
const NO_RESOLUTION = { columns: "", points: "", count: "", from: "", to: "", statistics: "" };

const LONGEST = 4000; // letters of an address, which servers limit

export const NOT_IN_REPORT = "This report does not hold that. Open the run itself by: tensortrial page RUN";
class NotInReport extends Error {}

/** Return what is loaded, undefined if a report does not have it. @template T @param {Promise<T>} loading @returns {Promise<T | undefined>} */
export const unlessMissing = (loading) => loading.catch((error) => {
  if (!(error instanceof NotInReport)) throw error;
  return undefined;
});

/** Fetch JSON. @param {string} path @param {Record<string, any>} [parameters] as those of `link` @param {boolean} [changes] whether it changes something */
async function fetchJson(path, parameters = {}, changes = false) {
  const query = link({ ...parameters, ...(embedded && NO_RESOLUTION) }, {}).slice(1);
  const address = `api/${path}${query && `?${query}`}`;
  if (embedded) {
    if (address in embedded) return embedded[address];
    throw new NotInReport(NOT_IN_REPORT);
  }
  const response = await (changes || address.length > LONGEST ? fetch(`api/${path}`, { method: "POST", body: new URLSearchParams(query) }) : fetch(address)).catch(() => { throw new TypeError("The server does not answer. The page continues once it runs again."); });
  if (!response.ok) throw new Error(await problemOf(response));
  return JSON.parse(await response.text(), revived);
}

/** @param {Response} response */
async function problemOf(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text || `${response.status} ${response.statusText}`;
  }
}

/** Fetch an answer; a text is the name of a run. @template {keyof Loads} K @param {K} path @param {Parameters<Loads[K]>[0]} [query] @returns {ReturnType<Loads[K]>} */
export const load = (path, query) => /** @type {any} */ (fetchJson(path, typeof query === "string" ? { run: query } : /** @type {any} */ (query)));

/** Return what the runs are, and all of one of them. @param {string} [run] @returns {Promise<Info>} */
export async function loadInfo(run) {
  const info = await fetchJson("info", embedded ? {} : { run });
  // A key may be that of a method, such as "constructor".
  for (const run of info.runs) run.metadata = Object.assign(Object.create(null), run.metadata);
  return { ...info, frozen: embedded !== null };
}

/** @param {{run: string, columns: number} & Choice & Span} query @returns {Promise<Tiles>} */
export async function loadTiles(query) {
  const tiles = await fetchJson("tiles", query);
  return { ...tiles, ...(await unpack(tiles.packed, tiles.names.length * tiles.starts.length, tiles.wide)) };
}

/** Return the five arrays of tiles, deflated, each with all upper bytes before the lower ones. @type {Unpack} */
async function unpack(packed, cells, wide) {
  const deflated = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const half = (/** @type {number} */ array, /** @type {number} */ i) => (bytes[2 * array * cells + i] << 8) | bytes[(2 * array + 1) * cells + i];
  const view = new DataView(new ArrayBuffer(8));
  const float = (/** @type {number} */ upper) => {
    view.setUint16(0, upper & 0xffff);
    return wide ? view.getFloat64(0) : view.getFloat32(0);
  };
  const floats = (/** @type {number} */ array) => new Float64Array(cells).map((_, i) => float(half(0, i) + (array && half(array, i))));
  const counts = (/** @type {number} */ array) => new Uint32Array(cells).map((_, i) => half(array, i));
  return { max: floats(0), min: floats(1), mean: floats(2), count: counts(3), nonfinite: counts(4) };
}

/** @type {Map<string, Promise<string[]>>} */
const namesOfRuns = new Map();

/** Return a run's tensors in execution order. @param {string} run @returns {Promise<string[]>} */
export function loadTensorNames(run) {
  let names = namesOfRuns.get(run);
  if (!names) namesOfRuns.set(run, (names = fetchJson("names", { run })));
  return names;
}

/** @type {Load<OfTensor & {statistics: string[], points: number} & Span, Series>} */
export const loadSeries = (query) => fetchJson("series", { ...query, statistics: query.statistics.join() });

/** Return the address of a raw value as a file of numpy, if any. @param {At} query */
export const addressOfNpy = ({ run, name, mode, worker, step }) => !embedded && `api/npy?${new URLSearchParams({ run, name, mode, worker, step: String(step) })}`;

/** Change what is noted about a run. @param {Run} run @param {Notes} change */
export async function saveNotes(run, change) {
  Object.assign(run, await fetchJson("notes", { run: run.name, change }, true));
}

/** Return what a report holds of one request for several runs. @param {string} path @returns {any[]} */
const heldOf = (path) => Object.entries(embedded ?? {}).filter(([address]) => address.startsWith(`api/${path}?`)).flatMap(([, answer]) => answer);

/** @param {string[]} [runs] by default all @returns {Promise<ScalarRow[]>} */
export async function loadScalarTable(runs) {
  return embedded ? heldOf("scalar_table").filter((each) => runs?.includes(each.run) ?? true) : fetchJson("scalar_table", { runs });
}

/** @param {{runs: string[], names: string[], points: number}} query @returns {Promise<Curve[]>} */
export async function loadScalars({ runs, names, points }) {
  return embedded ? heldOf("scalars").filter((each) => runs.includes(each.run) && names.includes(each.name))
    : fetchJson("scalars", { runs, names, points });
}

/** Follow the runs. @param {OnRuns} on */
export function listen(on) {
  if (embedded) return;
  let lost = false;
  const grown = () => {
    namesOfRuns.clear();
    on.grown();
  };
  const connect = () => {
    const events = new EventSource("api/events");
    events.onopen = () => {
      on.connected(true);
      if (lost) grown(); // what came while a laptop slept, or the server was away
      lost = false;
    };
    events.onerror = () => {
      lost = true;
      on.connected(false);
      if (events.readyState === EventSource.CLOSED) setTimeout(connect, 2000); // the browser has given up
    };
    events.onmessage = grown;
  };
  connect();
}
