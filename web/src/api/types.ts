// What the console's server sends and takes. Rates are per second, sizes bytes, times of the clock milliseconds since 1970,
// latencies microseconds unless the name says otherwise.

import type { Comparing, ConsoleEvent, Device, Figures, FileRow, Instance, Plan, Run, RunMode, RunPoint, Sentence, Side, State, Task, TestName } from "./figures";

export type * from "./figures";
export { PLAN_PARTS } from "./figures";

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
  /** Its place among others; null until it is known. */
  role?: Role | null;
}

export type Role = "standalone" | "primary" | "replica" | "galera" | "group-primary" | "group-secondary" | "unknown";

/** A server as its cluster sees it. */
export interface Member {
  id: string;
  name: string;
  address: string;
  reachable: boolean;
  error: string | null;
  role: Role;
  /** In the server's own words, such as Synced. */
  state: string | null;
  /** What its threads of replication complain of, in the server's words. */
  errors: string | null;
  /** Whether it takes part and follows. */
  in_step: boolean;
  /** null where it cannot be told. */
  lag_s: number | null;
  read_only: boolean;
  /** What the account may not see. */
  unseen: string[];
  extension: State | null;
  installed: boolean;
  hit_ratio_percent: number | null;
  qps: number | null;
  /** null without a list of hot pages. */
  warm_percent: number | null;
  warm_age_s: number | null;
  ready: boolean;
  ready_reason: string;
}

export interface Cluster {
  name: string;
  /** By the file of servers, not by what they say. */
  configured: boolean;
  problem: string | null;
  advice: string | null;
  members: Member[];
  /** Ids, in the order in which they are changed. */
  order: string[];
  /** What is being done to it, or was done last. */
  task: Task | null;
}

export type Way = "rolling" | "all";

export interface ClusterRequest {
  action: Action;
  path?: string;
  size?: number | string;
  uninstall?: boolean;
}

export interface ClusterPlan {
  nodes: { id: string; name: string; plan: Plan }[];
  refused: string | null;
}

export interface TableRow {
  schema: string;
  table: string;
  hits: number;
  misses: number;
  hit_ratio: number | null;
  cached_pages: number;
  cached_bytes: number;
  /** What the rules of bpe_tables say of it. */
  treatment: Treatment;
  /** With a limit: of the cache. */
  limit_percent: number | null;
}

export const TREATMENTS = ["normal", "prefer", "limit", "exclude"] as const;
export type Treatment = (typeof TREATMENTS)[number];

export interface TableRule {
  schema: string;
  table: string;
  action: Treatment;
  percent?: number;
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

export interface CompareRequest {
  minutes: number;
  /** Seconds of serving, or of bypass, at a time. */
  slice_s: number;
  /** Whether pages that are written in bypass are kept in the cache. */
  refill: boolean;
}

export interface Result {
  id: string;
  at_ms?: number;
  test: TestName;
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
  /** Why sysbench's tests cannot be run. */
  missing?: string | null;
  run: Run | null;
  /** Newest first. */
  results: Result[];
}

/** A line of a server's stream. */
export type LiveLine =
  | ({ type: "figures" } & Figures)
  | { type: "unreachable"; error: string; since_ms: number }
  | ({ type: "event" } & ConsoleEvent)
  | ({ type: "task" } & Task)
  | ({ type: "run" } & RunPoint)
  | ({ type: "comparing" } & Comparing);
