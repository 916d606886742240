/** What the server answers, as static/api.js passes it to the views, and the state. Nothing of this is served. */

/** What the fragment of the URL holds. */
type State = Record<string, string>;

interface ModeSteps {
  mode: string;
  /** first and last are steps of the mode */
  first: number;
  last: number;
  steps: number;
}

interface Run {
  name: string;
  path: string;
  /** else modes, statistics and collections are missing */
  opened: boolean;
  ended: boolean;
  steps: number;
  workers: string[];
  modes: ModeSteps[];
  /** that were saved for at least one tensor */
  statistics: string[];
  collections: string[];
  /** how many */
  findings: number;
  /** milliseconds since 1970 */
  started: number | null;
  framework: string;
  metadata: Record<string, any>;
}

interface Info {
  runs: Run[];
  damaged: string[];
  /** a report, which answers nothing new */
  frozen: boolean;
}

/** One statistic of all tensors. Arrays go row after row, a row being a tensor. */
interface Tiles {
  /** in execution order */
  names: string[];
  /** of each tensor */
  collections: string[][];
  /** the first step of each column */
  starts: number[];
  /** the step after the last */
  end: number;
  min: Float32Array;
  max: Float32Array;
  mean: Float32Array;
  /** of steps with a finite value */
  count: Uint32Array;
  /** of steps with NaN or an infinity */
  nonfinite: Uint32Array;
  /** of each column, whether a step of it is missing */
  missing: boolean[];
}

interface Statistic {
  statistic: string;
  min: (number | null)[];
  max: (number | null)[];
  mean: (number | null)[];
  nonfinite: number;
  /** at the last step */
  last: number | null;
}

interface Series {
  steps: number[];
  statistics: Statistic[];
}

interface TensorAbout {
  dtype: string;
  shape: number[] | null;
  nbytes: number | null;
  collections: string[];
  statistics: string[];
  steps: number[];
}

type Extreme = { value: number; index: number[] } | null;

/** A slice of two dimensions of a raw value. */
interface Value {
  /** of the whole tensor */
  shape: number[];
  dtype: string;
  /** elements of the whole tensor */
  total: number;
  rows: number;
  columns: number;
  /** row after row, NaN and infinities as they are */
  values: number[];
  /** the two dimensions */
  axes: [number, number];
  /** the place in each dimension */
  index: number[];
  rowStride: number;
  columnStride: number;
  /** of the whole tensor */
  histogram: { edges: number[]; counts: number[] } | null;
  /** of the whole tensor */
  extremes: { min: Extreme; max: Extreme; nan: number[] | null; nanCount: number } | null;
}

interface Finding {
  rule: string;
  /** of the mode */
  step: number;
  mode: string | null;
  worker: string | null;
  tensor: string | null;
  observed: number | null;
  threshold: number | null;
  sentence: string;
  /** the rule itself could not run */
  failed: boolean;
  /** milliseconds since 1970 */
  foundAt: number | null;
}

/** What `tensortrial diagnose` says. */
interface Diagnosis {
  /** one sentence */
  summary: string;
  /** in the order in which they began; step is of the mode */
  problems: { step: number | null; mode: string | null; tensor: string | null; text: string; note: boolean }[];
  /** files that cannot be read, so that the answer may lack what they hold */
  damaged: { path: string; reason: string }[];
  /** rules, with what is missing for them */
  unchecked: { rule: string; reason: string }[];
}

interface Curve {
  run: string;
  name: string;
  mode: string;
  steps: number[];
  globals: number[];
  times: number[];
  min: (number | null)[];
  max: (number | null)[];
  mean: (number | null)[];
  nonfinite: number;
  /** the mean of all workers */
  last: { step: number; value: number | null };
}

interface WorkerSteps {
  name: string;
  last: number;
  ended: boolean;
  savedAt: number | null;
  saved: number[];
  missing: number[];
}

interface Availability {
  starts: number[];
  end: number;
  workers: WorkerSteps[];
  sentence: string;
  damaged: string[];
}

/** The first difference of one tensor. `kind` is value, statistics, dtype, shape, only a, only b or unreadable. */
interface DifferenceRow {
  name: string;
  mode: string;
  worker: string;
  step: number;
  kind: string;
  what: string;
  maxAbs: number | null;
  ulps: string | null;
  elements: number | null;
  first: boolean;
}

interface NamedQuery {
  name: string;
  about: string;
  sql: string;
  parameters: { name: string; type: string; value: string | null; about: string }[];
}

interface Answer {
  columns: string[];
  rows: any[][];
  more: boolean;
}
