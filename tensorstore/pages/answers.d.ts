/** What the server answers, as static/api.js passes it to the views, the state, and the views. Nothing of this is served. */

/** The content of an element: a list counts as its members; null, undefined and false are left out. */
type Child = string | number | Node | null | undefined | false | (string | Node | false)[];

/** Attributes of an element, and its listeners. */
type Attributes = Record<string, any> & Partial<GlobalEventHandlers>;

/** A module in the tree of tensors. */
interface Branch {
  /** of the tensors up to here */
  name: string;
  path: string;
  children: Map<string, Branch>;
  /** places of the tensors below, and its own or -1 */
  members: number[];
  tensor: number;
}

/** What a view gets from the page. */
interface Page {
  info: Info;
  /** shows an error in place of the view */
  fail: (error: unknown) => void;
}

interface View {
  show: (state: State) => Promise<void> | void;
  /** a run has new steps; without it, show is called */
  grow?: () => Promise<void> | void;
}

type Action = () => Promise<void> | void;

type ViewMaker = (root: HTMLElement, page: Page) => View;

interface ChartLine {
  label: string;
  /** null breaks the line; it goes on across undefined */
  values: ArrayLike<number | null | undefined>;
  /** which of the colours of lines */
  color?: number;
  width?: number;
  /** 0 to 1 */
  alpha?: number;
  /** not in the tooltip */
  quiet?: boolean;
  /** what was saved, where `values` are smoothed */
  raw?: ArrayLike<number | null | undefined>;
}

interface Chart {
  /** ascending */
  x: ArrayLike<number>;
  lines: ChartLine[];
  /** upper line, lower line, colour */
  bands?: [number, number, number][];
  /** the least and the largest x that the axis shows */
  span?: [number, number];
  logX?: boolean;
  /** "0": linear, "1": logarithmic, "": linear unless that would hide all but the largest */
  logY?: string;
  /** of x */
  unit: "step" | "time" | "duration" | "number";
  /** charts with the same key share the line of the pointer */
  sync?: string;
  height: number;
  /** an x with a line across */
  mark?: number | null;
  onclick?: (x: number) => void;
  /** a range of x was dragged */
  onrange?: (from: number, to: number) => void;
}

/** What the fragment of the URL holds. */
type State = Record<string, string>;

/** How the state changes: `replace` without an entry in the history, `quiet` in the URL only. */
interface How {
  replace?: boolean;
  quiet?: boolean;
}

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
  /** The id of what is shown of it: the same for the same index files. */
  snapshot: string;
  steps: number;
  /** of how many, 0 if unknown */
  begun: number;
  /** how many tensors the heat map can show, without numbers */
  tensors: number;
  /** how many tensors are numbers, without hyperparameters and update ratios */
  numbers: number;
  /** how many tensors were saved, at each step counted */
  values: number;
  workers: string[];
  modes: ModeSteps[];
  /** that were saved for at least one tensor */
  statistics: string[];
  collections: string[];
  /** how many */
  findings: number;
  /** milliseconds since 1970 */
  started: number | null;
  /** when its newest step was saved, likewise */
  saved: number | null;
  framework: string;
  /** with the keys of nested objects joined: "model.layers" */
  metadata: Record<string, any>;
  /** the files that cannot be read, and why */
  damaged: string[];
  note: string;
  tags: string[];
  /** lists leave it out */
  archived: boolean;
}

interface Info {
  runs: Run[];
  damaged: string[];
  /** notes can be written */
  editable: boolean;
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
  min: Float64Array;
  max: Float64Array;
  mean: Float64Array;
  /** of steps with a finite value */
  count: Uint32Array;
  /** of steps with NaN or an infinity */
  nonfinite: Uint32Array;
  /** of each column, whether a step of it is missing */
  missing: boolean[];
  /** how many steps were left out of statistics that are computed from raw values */
  leftOut: number;
}

interface Statistic {
  statistic: string;
  min: (number | null)[];
  max: (number | null)[];
  mean: (number | null)[];
  nonfinite: number;
  /** the first step of these */
  fault: number | null;
  /** at the last step */
  last: number | null;
}

interface Series {
  steps: number[];
  /** as that of tiles */
  leftOut: number;
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

/** A slice of two dimensions of a raw value, or all slices as a mosaic. */
interface Value {
  /** of the whole tensor */
  shape: number[];
  dtype: string;
  /** elements of the whole tensor */
  total: number;
  rows: number;
  columns: number;
  /** row after row, NaN and infinities as they are, null between the tiles of a mosaic */
  values: (number | null)[];
  /** as numpy writes it; empty for a mosaic, and of a tensor of two dimensions */
  slice: string;
  /** how many tiles of a mosaic are in a row and in all, and how many slices there are */
  tiles: { across: number; shown: number; of: number } | null;
  /** of rows and of columns */
  strides: [number, number];
  /** of the whole tensor */
  extremes: { min: Extreme; max: Extreme; nan: number[] | null; nanCount: number } | null;
  /** the address of a PNG, of an array that is an image */
  image: string | null;
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
  /** how often the rule found it in this tensor and mode, of which this is the first time */
  times: number;
  /** the step of the last time */
  last: number;
  /** milliseconds since 1970 */
  foundAt: number | null;
}

/** What `tensortrial diagnose` says. */
interface Diagnosis {
  /** one sentence */
  summary: string;
  /** in the order in which they began; step is of the mode, lines are what follows from it, and origin is the weight that left its past before */
  problems: { step: number | null; mode: string | null; tensor: string | null; origin: string | null; headline: string; advice: string; lines: string[]; note: boolean }[];
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
  /** the first step of these */
  fault: number | null;
  /** the mean of all workers */
  last: { step: number; value: number | null };
}

/** The values of one scalar in one run and mode. */
interface ScalarRow {
  run: string;
  name: string;
  mode: string;
  /** in the collection losses */
  loss: boolean;
  steps: number;
  /** of the finite values */
  min: number | null;
  max: number | null;
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

/** What `tensortrial.compare` finds. */
interface Differences {
  sentence: string;
  lastAgreeing: string | null;
  lines: string[];
  rows: DifferenceRow[];
  /** how many more there are */
  more: number;
  same: boolean;
  /** what else differs: name, of a, of b */
  about: any[][];
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

/** A row of a heat map. */
interface Row {
  /** the label */
  text: string;
  /** the name of a tensor or the path of a folded module */
  key: string;
  /** how deep in the tree of modules */
  level: number;
  kind: "tensor" | "open" | "folded";
}

/** A finding at a place of a heat map. */
interface Mark {
  row: number;
  step: number;
  text: string;
  onopen: () => void;
}

/** What a heat map shows. Arrays go row after row. */
interface Model {
  /** from top to bottom */
  rows: Row[];
  /** the first step of each column, ascending */
  starts: ArrayLike<number>;
  /** the step after the last column */
  end: number;
  /** what is coloured */
  values: Float64Array;
  /** VALUE, NOTHING, NONFINITE or MISSING */
  flags: Uint8Array;
  scale: Scale;
  marks: Mark[];
}

/** A cell of a heat map; column -1 is the label. */
interface Cell {
  row: number;
  column: number;
}

/** What is seen of a heat map, upper bounds excluded. */
interface Seen {
  step0: number;
  step1: number;
  row0: number;
  row1: number;
}

/** A rectangle in pixels. */
interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** What a heat map calls. */
interface OnHeatmap {
  /** the pointer is at pixel x, y of the page */
  hover: (cell: Cell | null, x: number, y: number) => void;
  /** a cell, or a label, was clicked */
  open: (cell: Cell) => void;
  /** another part is seen */
  move: (seen: Seen) => void;
}

/** Tensors as a row. */
interface Line {
  row: Row;
  /** places of the tensors that it stands for */
  members: number[];
}

type ScaleKind = "sequential" | "diverging";

/** Values outside take the colour of the end; those nearer to 0 than `neutral` that of the middle. */
interface Scale {
  kind: ScaleKind;
  low: number;
  high: number;
  log: boolean;
  neutral?: number;
}

/** A term, its value, a mark before the term, and whether the pointer is at this one. */
type TooltipRow = [term: string, value: string, mark?: string | Node, near?: boolean];

interface TooltipContent {
  title: string;
  rows?: TooltipRow[];
  note?: string;
}

/** A column of the table of runs. */
interface Column {
  key: string;
  title: string;
  hint?: string;
  number?: boolean;
  value: (run: Run) => any;
  cell?: (run: Run) => string | number | Node;
}

/** A column of a table; a cell without `cell` is its key as text. */
interface TableColumn<T> {
  title: string;
  hint?: string;
  number?: boolean;
  /** by which it is sorted */
  key?: (row: T) => any;
  cell?: (row: T) => Child;
}

/** A table whose header cells sort it. */
interface Table<T> {
  columns: TableColumn<T>[];
  rows: T[];
  /** title of the column that sorts at first, with "-" before it for descending */
  sort?: string;
  /** of a row */
  attributes?: (row: T) => Record<string, any>;
  /** what to say when there are no rows */
  empty?: string;
  /** a last row */
  summary?: Child[];
}

/** An axis of hyperparameters or a metric; places and marks are from 0 to 1. */
interface ColumnAxis {
  column: Column;
  place: (run: Run) => number | null;
  marks: { at: number; text: string }[];
}

interface Scatter {
  runs: Run[];
  x: Column;
  y: Column;
  color: (run: string) => number;
  open: (run: Run) => void;
}

interface Parallel {
  runs: Run[];
  columns: Column[];
  open: (run: Run) => void;
}

/** What a view of one run shows of it; worker "" is all. */
interface Choice {
  statistic: string;
  mode: string;
  worker: string;
}

/** A mark of a legend, and what it means. */
interface Swatch {
  label: string;
  kind: "nonfinite" | "missing" | "nothing" | "mark" | "usual";
}

/** A view of SQL. */
interface SqlView {
  name: string;
  columns: string[];
}

/** A chart of Scalars; mode null is all modes. */
interface Spec {
  key: string;
  title: string;
  /** of the scalars in it */
  names: string[];
  mode: string | null;
}

/** Charts of Scalars below one title. */
interface Section {
  title: string;
  specs: Spec[];
}

/** Where a chart of scalars is. */
interface Place {
  spec: Spec;
  box: HTMLElement;
  body: HTMLElement;
}

/** A request to the server. */
type Load<Query, Answer> = (query: Query) => Promise<Answer>;

/** What a request about one tensor names. */
interface OfTensor {
  run: string;
  name: string;
  mode: string;
  worker: string;
}

/** A tensor at a step. */
type At = OfTensor & { step: number };

/** What is noted about a run, beside what the job wrote. */
interface Notes {
  note?: string;
  tags?: string[];
  archived?: boolean;
}

/** Steps of the mode, both included; null for all. */
interface Span {
  from: number | null;
  to: number | null;
}

/** It has one edge more than counts. */
interface Histogram {
  step: number;
  /** below which 5, 25, 50, 75 and 95 % of the values are */
  quantiles: number[];
  edges: ArrayLike<number>;
  counts: ArrayLike<number>;
}

/** What the page uses of uPlot's plots. */
interface Plot {
  data: any[];
  axes: any[];
  width: number;
  height: number;
  root: HTMLElement;
  over: HTMLElement;
  ctx: CanvasRenderingContext2D;
  bbox: Box;
  select: Box;
  cursor: { left: number; top: number; idx: number | null | undefined };
  valToPos: (value: number, scale: string, onCanvas?: boolean) => number;
  posToVal: (position: number, scale: string) => number;
  setSize: (size: { width: number; height: number }) => void;
  destroy: () => void;
  setCursor: (at: { left: number; top: number }) => void;
}

/** Returns the marks of an axis. */
type Marks = (plot: any, axis: number, min: number, max: number) => number[];

interface PlotAxis {
  values?: (plot: Plot, marks: (number | null)[], axis: number, space: number, apart: number) => string[];
  [key: string]: any;
}

/** What the page says to uPlot. */
interface PlotOptions {
  axes: PlotAxis[];
  hooks: { draw: ((plot: Plot) => void)[]; setCursor: ((plot: Plot) => void)[]; setSelect: ((plot: Plot) => void)[] };
  cursor: { sync?: false | { filters: { pub: (type: string) => boolean }; [key: string]: any } | "" ; [key: string]: any };
  [key: string]: any;
}

/** What fetches the answers whose query is sent as it is, by path. */
interface Loads {
  sizes: Load<void, Record<string, number>>;
  tensor: Load<OfTensor & {step?: null}, TensorAbout>;
  histograms: Load<OfTensor & {count: number} & Span, Histogram[]>;
  /** null if the raw value was not saved */
  value: Load<At & {slice: string}, Value | null>;
  findings: Load<string, Finding[]>;
  diagnosis: Load<string, Diagnosis>;
  availability: Load<{run: string, mode: string, columns: number}, Availability>;
  /** Without tolerances, bits are compared. */
  difference: Load<{a: string, b: string, rtol?: string, atol?: string}, Differences>;
  queries: Load<void, NamedQuery[]>;
  query: Load<{run: string, query: string, parameters: Record<string, string>}, Answer>;
  /** The views of several runs have the column `run`; null is all runs. */
  sql: Load<{runs: string[] | null, sql: string}, Answer>;
  views: Load<string, SqlView[]>;
}

/** Of the library that the page loads before its own modules. */
declare const uPlot: new (options: PlotOptions, data: any[], parent: HTMLElement) => Plot;

/** The picture of the cells of a heat map, and what it shows. */
interface Painted { key: string; model: Model; canvas: OffscreenCanvas }

/** Where the pointer was pressed on a heat map, and what was seen there. */
interface Drag { x: number; y: number; window: Seen; moved: boolean }

interface OnRuns { grown: () => void; connected: (now: boolean) => void }

// Functions with several parameters.

/** `wide`: a number is the upper bits of a float64, not of a float32. */
type Unpack = (packed: string, cells: number, wide: boolean) => Promise<Pick<Tiles, "max" | "min" | "mean" | "count" | "nonfinite">>;

/** `all` has also other scalars; `runs` is the order of the lines; `equal`: the x axis is that of all curves of the modes. */
type DrawCurves = (place: Place, all: Curve[], runs: string[], info: Info, now: State, equal?: boolean) => void;

/** null, undefined and false leave an attribute out. */
type MakeElement = <K extends keyof HTMLElementTagNameMap>(tag: K, attributes?: Attributes, ...children: Child[]) => HTMLElementTagNameMap[K];

/** An option is a value, or a value and its text. */
type Select = (label: string, options: (string | string[])[], value: string, onchange: (value: string) => void, hint?: string) => HTMLElement;

type Textbox = (label: string, value: string, onchange: (value: string) => void, placeholder?: string) => HTMLElement;

/** Histograms ascend by step and have comparable widths; `chosen` is a step to show in another color. */
type Ridgelines = (histograms: Histogram[], width: number, height: number, chosen: number | null) => HTMLCanvasElement;

/** `ofOne`: the view shows one run. */
type DrawSide = (side: HTMLElement, info: Info, now: State, view: string, ofOne: boolean) => void;

/** `numeric` is of each column. */
type DrawPlot = (tools: HTMLElement, root: HTMLElement, answer: Answer, numeric: boolean[], info: Info, now: State) => void;

/** `of` is what else it is a statistic of. */
type PlaceSeries = (into: HTMLElement, height: number, series: Series, one: Statistic, of?: string) => () => void;

type Legend = (scale: Scale, title: string, format: (value: number) => string, others: (Swatch | false)[]) => HTMLElement;
