// What the console's server sends and takes. Rates are per second, sizes bytes, times of the clock milliseconds since 1970,
// latencies microseconds unless the name says otherwise.

import type { Device, Figures, Instance, State } from "./figures";

export type { Device, Figures, Instance, Quantiles, State } from "./figures";

export interface About {
  version: string;
  experience: boolean;
}

export interface Server {
  id: string;
  name: string;
  address: string;
  reachable: boolean;
  error: string | null;
  /** These are null until the server has answered once. */
  flavour: string | null;
  version: string | null;
  data_directory: string | null;
  pool_bytes: number | null;
  cache_bytes: number | null;
  cache_path: string | null;
  load_mode: string | null;
  async_mode: string | null;
  installed: boolean;
  state: State | null;
  state_reason: string | null;
}

export interface Sentence {
  text_key: string;
  level?: "good" | "note" | "bad";
  values: Record<string, number | string>;
  /** In English. */
  text: string;
}

export interface FileRow {
  file: string;
  page_size: number;
  hits: number;
  misses: number;
  hit_ratio: number | null;
  cached_pages: number;
  cached_bytes: number;
}

export interface TableRow {
  schema: string;
  table: string;
  hits: number;
  misses: number;
  hit_ratio: number | null;
  cached_pages: number;
  cached_bytes: number;
}

export type Settings = Record<string, string | number | boolean | null>;

export interface Details {
  settings: Settings;
  instances: Instance[];
  devices: Device[];
  files: FileRow[];
  tables: TableRow[];
  explain: Sentence[];
}

export type Action = "on" | "off";

export interface SwitchRequest {
  action: Action;
  path?: string;
  size?: number | string;
  /** With "off": undo all that `bpe enable` did. */
  uninstall?: boolean;
}

export interface Change {
  what: string;
  from: string | number | null;
  to: string | number | null;
  why: string | null;
}

export interface Plan {
  changes: Change[];
  warnings: string[];
  refused: string | null;
  /** Goes back with the confirmation; none where it is refused. */
  digest: string | null;
}

/** Parts of a plan that may differ from the one that was shown. */
export const PLAN_PARTS = ["request", "server", "plugin", "settings", "pool", "files", "record", "plan"] as const;
export type PlanPart = (typeof PLAN_PARTS)[number];

/** The answer to a confirmation of a plan that is no longer true. */
export interface PlanChanged {
  plan: Plan;
  differs: PlanPart[];
}

/** `undone`: put back after a later step failed. `remains`: that did not work. */
export type StepState = "waiting" | "running" | "done" | "failed" | "undone" | "remains";

export interface Task {
  id: string;
  server: string;
  title: string;
  state: "running" | "done" | "failed";
  steps: { text: string; state: StepState }[];
  error: string | null;
  advice: string | null;
}

export interface ConsoleEvent {
  at_ms: number;
  server: string | null;
  level: "info" | "warning" | "error";
  text: string;
}

export type TestName = "oltp_read_only" | "oltp_write_only" | "oltp_read_write" | "script" | "sql";
export type RunMode = "manual" | "compare";

export interface RunPoint {
  run: string;
  at_ms: number;
  phase: string;
  qps: number;
  p95_ms: number;
  enabled: boolean;
}

export interface Side {
  qps: number;
  p95_ms: number;
}

export interface Run {
  id: string;
  test: TestName;
  /** Of a script of one's own: its name and its options. */
  script?: string;
  options?: string[];
  mode: RunMode;
  threads: number;
  seconds: number;
  state: string;
  phase: string | null;
  points: RunPoint[];
  off: Side | null;
  on: Side | null;
  gain_percent: number | null;
  reference_gain_percent: number | null;
  error?: string | null;
}

export interface Result {
  id: string;
  at_ms?: number;
  test: TestName;
  script?: string;
  mode: RunMode;
  off: Side | null;
  on: Side | null;
  gain_percent: number | null;
  reference_gain_percent: number | null;
}

export interface Experience {
  available: boolean;
  server: string | null;
  tests: TestName[];
  /** sysbench scripts of one's own, if the console was given a folder of them. */
  scripts?: Scripts | null;
  /** Why sysbench's tests cannot be run. */
  missing?: string | null;
  run: Run | null;
  /** Newest first. */
  results: Result[];
}

export interface Scripts {
  folder: string;
  names: string[];
  /** Why none is offered. */
  reason?: string | null;
}

export interface RunRequest {
  test: TestName;
  sql?: string;
  script?: string;
  /** Each `name=value`. */
  options?: string[];
  mode: RunMode;
  threads: number;
  seconds: number;
}

/** A line of a server's stream. */
export type LiveLine =
  | ({ type: "figures" } & Figures)
  | { type: "unreachable"; error: string; since_ms: number }
  | ({ type: "event" } & ConsoleEvent)
  | ({ type: "task" } & Task)
  | ({ type: "run" } & RunPoint);
