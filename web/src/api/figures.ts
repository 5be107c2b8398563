// Made by `cargo run -p interface --example generate` from what crates/bpe and crates/bpe-lab send. Change it there.

export type State = "active" | "bypass" | "disabled" | "passive" | "failed" | "not installed";

/** Microseconds. */
export interface Quantiles {
  p50: number;
  p95: number;
  p99: number;
}

/**
 * Rates are of the interval, names that end in `_total` since the cache was opened, everything else is of its end.
 *
 * The latency of InnoDB's own pool is not among them: InnoDB does not measure it, and the hooks only see its misses. Its
 * share of the reads is.
 */
export interface Figures {
  /** Milliseconds since 1970. */
  at_ms: number;
  interval_s: number;
  /** `active`, `bypass`, `disabled`, `passive`, `failed` or `not installed`. */
  state: State;
  state_reason: string;
  /** How the server's asynchronous I/O was seen to work. */
  async_mode: string;
  uptime_s: number;
  /** Statements of clients. */
  qps: number;
  /** Statements COMMIT and ROLLBACK. */
  tps: number;
  threads_running: number;
  connections: number;
  /** Page requests that InnoDB's pool answered from memory. */
  pool_reads_per_s: number;
  /** Reads that missed the pool and were answered by the cache. */
  cache_reads_per_s: number;
  /** Page reads that went to the data files. While the extension does not count them: what InnoDB read. */
  data_reads_per_s: number;
  /** Pages that InnoDB says it has read, from wherever. */
  innodb_reads_per_s: number;
  /** Of them, those of which the extension has seen neither a hit nor a read of the data file. */
  unseen_reads_per_s: number;
  /** Share of page requests that the pool answered; `null` if there were none. */
  pool_hit_percent: number | null;
  /** Of the reads that the cache was asked for in this interval; `null` if there were none. */
  hit_ratio_percent: number | null;
  hit_ratio_total_percent: number;
  misses_per_s: number;
  /** Misses of pages that had been read before, recently. A larger cache would have had many of them. */
  misses_returned_per_s: number;
  /** `null` if there were no reads. */
  cache_read_us: Quantiles | null;
  /** `null` if there were no reads. */
  data_read_us: Quantiles | null;
  /** The server refuses the report `latency`, which needs the PROCESS privilege. */
  latency_refused: boolean;
  saved_reads_total: number;
  saved_bytes_per_s: number;
  /** Bytes of the pages that the cache answered, each as long as in its data file. */
  saved_bytes_total: number;
  /**
   * Microseconds that a read of the cache takes less than one of the data files, by both p50: of the interval, or where it
   * had no reads of one kind, of the time since the cache was opened.
   */
  gain_us: number | null;
  /**
   * Milliseconds that all clients together did not wait, each second: reads saved, times `gain_us`. Less than 0 when
   * the cache is slower than the data disk; `null` while one of both is not known.
   */
  saved_ms_per_s: number | null;
  cache_written_bytes_per_s: number;
  cache_written_bytes_24h: number;
  /** What InnoDB wrote, its own bookkeeping included. */
  data_written_bytes_per_s: number;
  pages_cached: number;
  bytes_cached: number;
  capacity_bytes: number;
  memory_bytes: number;
  pool_bytes: number;
  admitted_per_s: number;
  rejected_per_s: number;
  evicted_per_s: number;
  invalidated_per_s: number;
  /** Offers dropped because the writer was behind. */
  dropped_staging_full_per_s: number;
  /** Offers turned away because bpe_daily_write_limit was used up. */
  write_limit_rejected_per_s: number;
  lock_accesses_per_s: number;
  /** Share of accesses to instance locks that found the lock held; `null` if there were none. */
  lock_wait_percent: number | null;
  device_errors: number;
  /** Reads of cache disks that were not answered within a second. */
  reads_given_up: number;
  failed_proofs: number;
  /** How often a data file looked otherwise without a change by the server, since it started. */
  audit_suspicions: number;
  /** Data files that are not cached for that reason now. */
  suspended_files: number;
  /** Pages that are damaged in the data files, and whole in the cache. */
  damaged_pages: number;
}

/** How welcome it is. */
export const SENTENCE_LEVELS = ["good", "note", "bad"] as const;
export type SentenceLevel = (typeof SENTENCE_LEVELS)[number];

export interface Sentence {
  text_key: string;
  level: SentenceLevel;
  values: Record<string, number | string>;
  text: string;
}

/** One row of the plan's table: item, old value, new value, reason. */
export interface Change {
  what: string;
  /** Empty: the item is new. */
  from: string;
  to: string;
  why: string;
}

/** Topics of a plan, by the words that the page translates. */
export const PLAN_PARTS = ["request", "server", "plugin", "settings", "pool", "files", "record", "plan"] as const;
export type PlanPart = (typeof PLAN_PARTS)[number];

/** What a page is shown before it is done. */
export interface Plan {
  changes: Change[];
  warnings: string[];
  refused: string | null;
  /** To be sent with the confirmation; none where it is refused. */
  digest: string | null;
}

/** A plan that is another one than was shown. */
export interface PlanChanged {
  plan: Plan;
  differs: PlanPart[];
}

export const EVENT_LEVELS = ["info", "warning", "error"] as const;
export type EventLevel = (typeof EVENT_LEVELS)[number];

export interface ConsoleEvent {
  /** Milliseconds since 1970. */
  at_ms: number;
  /** The server's id. */
  server: string;
  level: EventLevel;
  text: string;
}

export const TASK_STATES = ["running", "done", "failed"] as const;
export type TaskState = (typeof TASK_STATES)[number];

export const STEP_STATES = ["waiting", "running", "done", "failed", "undone", "remains"] as const;
export type StepState = (typeof STEP_STATES)[number];

export interface Step {
  text: string;
  state: StepState;
}

export interface Task {
  id: string;
  /** The server's id. */
  server: string;
  title: string;
  state: TaskState;
  steps: Step[];
  error: string | null;
  advice: string | null;
}

/** What the figures of serving are beside those of bypass. */
export const FOUNDS = ["better", "worse", "no difference", "too few pairs"] as const;
export type Found = (typeof FOUNDS)[number];

/** How a comparison ended. */
export const COMPARISON_ENDEDS = ["complete", "interrupted", "bypass hurt", "failed"] as const;
export type ComparisonEnded = (typeof COMPARISON_ENDEDS)[number];

/** A figure with the extension serving and bypassed. */
export interface ComparisonRow {
  name: string;
  title: string;
  /** 1/s, us, or empty for a number of things. */
  unit: string;
  more_is_better: boolean;
  /** Median of the slices. */
  serving: number | null;
  /** Median of the slices. */
  bypass: number | null;
  /** Serving less bypass of each pair, in their order. */
  differences: number[];
  /** The middle of them. */
  difference: number | null;
  /** The true difference is above this with 97.5 % certainty. */
  low: number | null;
  /** And below this. */
  high: number | null;
  /** The difference in percent of bypass. */
  percent: number | null;
  found: Found;
}

/** What a comparison has found so far. */
export interface Comparison {
  server: string;
  ended: ComparisonEnded;
  /** Why it ended early. */
  why: string | null;
  /** Result for the statements per second. */
  verdict: Found;
  pairs: number;
  pairs_wanted: number;
  pairs_for_a_verdict: number;
  slice_s: number;
  seconds: number;
  /** Whether pages that were written in bypass were kept in the cache. */
  refill: boolean;
  /** Seconds of bypass until it ended because that hurt. */
  hurt_after_s: number | null;
  /** Statements of the last two of them, in percent of those while serving. */
  hurt_percent: number | null;
  figures: ComparisonRow[];
  /** What this cannot see, and what else to know. */
  notes: string[];
}

/** The running or the last comparison. */
export interface Comparing {
  running: boolean;
  /** From 1 on; 0 while the server is only watched. */
  pair: number;
  pairs: number;
  in_bypass: boolean;
  statements_per_s: number;
  /** Why there was none. */
  error: string | null;
  advice: string | null;
  /** Result so far. */
  found: Comparison | null;
}

/** Statements a second and the 95th percentile of their latency (sysbench: of transactions) over a time. */
export interface Side {
  qps: number;
  p95_ms: number;
}

export const TEST_NAMES = ["oltp_read_only", "oltp_write_only", "oltp_read_write", "sql"] as const;
export type TestName = (typeof TEST_NAMES)[number];

export const RUN_MODES = ["manual", "compare"] as const;
export type RunMode = (typeof RUN_MODES)[number];

export const RUN_STATES = ["running", "done", "stopped", "failed"] as const;
export type RunState = (typeof RUN_STATES)[number];

export const RUN_PHASES = ["prepare", "off", "warm", "on", "manual"] as const;
export type RunPhase = (typeof RUN_PHASES)[number];

/** A second of it. */
export interface RunPoint {
  run: string;
  at_ms: number;
  phase: RunPhase;
  qps: number;
  p95_ms: number;
  enabled: boolean;
}

export interface Run {
  id: string;
  /** Milliseconds since 1970, of its beginning. */
  at_ms: number;
  /** The server's id, and which one it is. */
  server: string;
  server_version: string;
  test: TestName;
  mode: RunMode;
  threads: number;
  seconds: number;
  state: RunState;
  phase: RunPhase;
  points: RunPoint[];
  off: Side | null;
  on: Side | null;
  /** In statements a second, from off to on. */
  gain_percent: number | null;
  reference_gain_percent: number | null;
  error: string | null;
}

/** What a page asks for. */
export interface RunRequest {
  test: TestName;
  sql?: string;
  mode: RunMode;
  threads: number;
  seconds: number;
}

export interface Instance {
  /** Number of the instance. */
  instance: number;
  /** Page reads that came to the instance. */
  accesses: number;
  /** Percent of all accesses. */
  share: number;
  /** Page reads that it answered. */
  hits: number;
  /** Page reads that it could not answer. */
  misses: number;
  /** Pages in the instance. */
  pages: number;
  /** Pages that wait in memory to be written. */
  staged: number;
  /** Pages that fit. */
  capacity: number;
  /** Times its lock was taken. */
  lock_accesses: number;
  /** Times its lock was found held. */
  lock_waits: number;
}

export interface Device {
  /** Cache file or device. */
  path: string;
  /** Whether the disk is used. */
  active: boolean;
  /** Why it is not used. */
  state: string;
  /** Size of the cache on this disk. */
  bytes: number;
  /** Pages on this disk. */
  pages: number;
  /** Reads. */
  reads: number;
  /** Bytes read. */
  bytes_read: number;
  /** Writes. */
  writes: number;
  /** Bytes written. */
  bytes_written: number;
  /** Microseconds that a write takes, of late. */
  write_us: number;
  /** Reads and writes that failed. */
  errors: number;
  /** Reads that were not answered within a second. */
  reads_given_up: number;
  /** Reads not made because the disk could take no more just then. */
  reads_busy: number;
  /** Whether the kernel's page cache is passed by. */
  direct_io: boolean;
  /** Segments that the disk is cut into. */
  segments: number;
  /** Of them, those that hold nothing. */
  free_segments: number;
}

export interface FileRow {
  /** Path of the data file. */
  file: string;
  /** Schema of its table; null for system, undo and general tablespaces. */
  schema: string | null;
  /** Its table. */
  table: string | null;
  /** Its partition, if the table has some. */
  partition: string | null;
  /** Bytes of its pages. */
  page_size: number;
  /** Page reads that the cache answered. */
  hits: number;
  /** Page reads that went to the data disk. */
  misses: number;
  /** Percent of the reads that were hits. */
  hit_ratio: number;
  /** Pages of the file in the cache. */
  cached_pages: number;
  /** Bytes of these pages. */
  cached_bytes: number;
  /** The rule of bpe_tables that counts for it; null if none. */
  rule: string | null;
  /** Page reads and writes that passed the cache by because the rules exclude it. */
  kept_out: number;
}

// Limits by which figures are judged.
/** Reads per second below which a cache has nothing to do. */
export const IDLE = 1;
/** Percent of the data disk's p50 by which the cache's must differ to be called faster or slower. */
export const ALIKE = 10;
/** Percent of hits from which on the data disk feels it. */
export const LITTLE = 20;
/** Percent of the capacity from which on the cache counts as full: some is always being emptied. */
export const FULL = 90;
/** Percent of hits below which a cache that still fills is not yet judged. */
export const HALF = 50;
