// A pretended server with a buffer pool, a cache that fills and a load, for working on the page without a real one.

/** @typedef {import("../src/api/types").Figures} Figures */

const GIB = 2 ** 30;
const MIB = 2 ** 20;

const wave = (/** @type {number} */ seconds, /** @type {number} */ period) => 1 + 0.06 * Math.sin((seconds * 2 * Math.PI) / period) + (Math.random() - 0.5) * 0.06;

export class PretendedServer {
  /** @param {string} id @param {string} name */
  constructor(id, name) {
    this.id = id;
    this.name = name;
    this.reachable = true;
    this.since = 0;
    /** @type {"active" | "disabled"} */
    this.state = "disabled";
    this.installed = true;
    /** As with an account that lacks the PROCESS privilege. */
    this.latencyRefused = false;
    this.settings = {
      bpe_path: "/mnt/nvme/bpe", bpe_size: GIB, bpe_instances: 8, bpe_io_capacity: 0, bpe_memory_limit: 0,
      bpe_compression: "off", bpe_daily_write_limit: 0,
      bpe_tables: "",
    };
    /** What the rules say of tables, by name. @type {Record<string, {action: string, percent: number | undefined}>} */
    this.rules = {};
    this.pool = 128 * MIB;
    /** Part of the cache that is filled. */
    this.filled = 0;
    this.savedReads = 0;
    this.written = 0;
    this.hits = 0;
    this.misses = 0;
    this.errors = 0;
    /** @type {Figures[]} */
    this.history = [];
    const now = Date.now();
    for (let i = 240; i > 0; i--) this.tick(now - i * 1000);
  }

  /** @param {boolean} on */
  turn(on) {
    this.state = on ? "active" : "disabled";
    this.filled = 0;
    this.hits = this.misses = this.savedReads = 0;
  }

  /** A second passes. @param {number} now */
  tick(now) {
    const on = this.state === "active";
    const seconds = now / 1000;
    if (on) this.filled = Math.min(1, this.filled + 0.06 * (1.05 - this.filled));
    const ratio = on ? 0.98 * this.filled ** 0.7 : 0;
    const wanted = on ? 2900 / Math.max(1 - ratio, 0.16) : 2900;
    const data = Math.min(2950, wanted * (1 - ratio)) * wave(seconds, 23);
    const cache = on ? wanted * ratio * wave(seconds, 17) : 0;
    const qps = (data + cache) * 1.09;
    this.hits += cache;
    this.misses += on ? data : 0;
    this.savedReads += cache;
    const writes = on ? (1 - this.filled) * 40 * MIB + 2.5 * MIB : 0;
    this.written += writes;
    const jitter = wave(seconds, 11);
    const timed = !this.latencyRefused;
    /** @type {Figures} */
    const figures = {
      at_ms: now, interval_s: 1, state: this.state, state_reason: "", async_mode: "libaio", uptime_s: Math.round(seconds),
      qps, tps: qps / 16, threads_running: 22, connections: 66,
      pool_reads_per_s: qps * 62, cache_reads_per_s: cache, data_reads_per_s: data,
      misses_per_s: on ? data : 0, misses_returned_per_s: 0, innodb_reads_per_s: cache + data, unseen_reads_per_s: 0,
      pool_hit_percent: (qps * 62 * 100) / (qps * 62 + cache + data),
      hit_ratio_percent: on ? (cache * 100) / (cache + data) : null,
      hit_ratio_total_percent: this.hits + this.misses > 0 ? (this.hits * 100) / (this.hits + this.misses) : 0,
      cache_read_us: on && timed ? { p50: 92 * jitter, p95: 210 * jitter, p99: 480 * jitter } : null,
      data_read_us: timed ? { p50: (on ? 640 : 2100) * jitter, p95: (on ? 1900 : 9800) * jitter, p99: (on ? 4200 : 21000) * jitter } : null,
      latency_refused: this.latencyRefused,
      saved_reads_total: this.savedReads, saved_bytes_per_s: cache * 16384, saved_bytes_total: this.savedReads * 16384,
      gain_us: on && timed ? 548 : null, saved_ms_per_s: timed ? cache * 0.55 : null, cache_written_bytes_per_s: writes, cache_written_bytes_24h: this.written,
      data_written_bytes_per_s: 1.8 * MIB * jitter,
      pages_cached: on ? Math.round((this.filled * this.settings.bpe_size) / 16384) : 0,
      bytes_cached: on ? this.filled * this.settings.bpe_size : 0,
      capacity_bytes: on ? this.settings.bpe_size : 0, memory_bytes: on ? 4.9 * MIB : 0.2 * MIB, pool_bytes: this.pool,
      admitted_per_s: writes / 16384, rejected_per_s: on ? data * 0.4 : 0, evicted_per_s: on && this.filled > 0.95 ? 120 : 0,
      invalidated_per_s: on ? 3 : 0, dropped_staging_full_per_s: 0, write_limit_rejected_per_s: 0, lock_accesses_per_s: on ? cache + data : 0,
      lock_wait_percent: on ? 0.02 : null, device_errors: this.errors, reads_given_up: 0, failed_proofs: 0, audit_suspicions: 0, suspended_files: 0, damaged_pages: 0,
    };
    this.history.push(figures);
    this.history.splice(0, this.history.length - 900);
    return figures;
  }

  about() {
    const on = this.state === "active";
    return {
      id: this.id, name: this.name, address: `/run/mysqld/${this.name}.sock`, reachable: this.reachable,
      error: this.reachable ? null : "Can't connect to the server: Connection refused", flavour: "MariaDB", version: "10.11.19",
      data_directory: "/var/lib/mysql", pool_bytes: this.pool, cache_bytes: on ? this.settings.bpe_size : 0,
      cache_path: this.settings.bpe_path, load_mode: "early", async_mode: "libaio", installed: this.installed,
      state: this.state, state_reason: "",
    };
  }

  details() {
    const on = this.state === "active";
    const shares = [31.2, 12.4, 10.9, 10.1, 9.6, 9.2, 8.7, 7.9];
    const pages = this.settings.bpe_size / 16384;
    const table = (/** @type {number} */ i) => {
      const hits = Math.round((this.hits / 30) * (1 + Math.sin(i)));
      const misses = Math.round((this.misses / 30) * (1 + Math.cos(i * 3)));
      const cached = Math.round((this.filled * pages) / 30);
      return { hits, misses, hit_ratio: hits + misses > 0 ? (hits * 100) / (hits + misses) : 0, cached_pages: cached, cached_bytes: cached * 16384 };
    };
    const last = this.history[this.history.length - 1];
    return {
      settings: this.settings,
      instances: !on ? [] : shares.map((share, instance) => ({
        instance, share, accesses: Math.round(this.hits * share), lock_accesses: Math.round(this.hits * share * 2) + 1,
        lock_waits: Math.round(this.hits * share * 0.0004), hits: Math.round((this.hits * share) / 100), misses: Math.round((this.misses * share) / 100),
        pages: Math.round((pages / 8) * this.filled), staged: 3, capacity: pages / 8,
      })),
      devices: !on ? [] : [{
        path: "/mnt/nvme/bpe/bpe-4a1fbc2290de5512.cache", bytes: this.settings.bpe_size, segment_bytes: 4 * MIB, segments: 256,
        free_segments: Math.round(256 * (1 - this.filled)), pages: Math.round(pages * this.filled), bytes_written: this.written,
        bytes_read: this.savedReads * 16384, reads: Math.round(this.savedReads), writes: Math.round(this.written / 262144), errors: this.errors,
        reads_given_up: 0, reads_busy: 0, active: true, state: "active", direct_io: true, write_us: 310,
      }],
      files: !on ? [] : Array.from({ length: 30 }, (_, i) => ({ file: `sbtest/sbtest${i + 1}.ibd`, page_size: 16384, rule: null, kept_out: 0, ...table(i) })),
      tables: !on ? [] : Array.from({ length: 30 }, (_, i) => ({ schema: "sbtest", table: `sbtest${i + 1}`, ...table(i), ...this.ruleOf(`sbtest.sbtest${i + 1}`) })),
      explain: this.explain(last),
    };
  }

  /** @param {string} table */
  ruleOf(table) {
    const rule = this.rules[table];
    return { treatment: rule?.action ?? "normal", limit_percent: rule?.percent ?? null };
  }

  /** @param {{schema: string, table: string, action: string, percent?: number}} wanted */
  setRule({ schema, table, action, percent }) {
    if (action === "normal") delete this.rules[`${schema}.${table}`];
    else this.rules[`${schema}.${table}`] = { action, percent };
    const words = Object.entries(this.rules).map(([name, rule]) => `${rule.action}${rule.percent ? ` ${rule.percent}%` : ""} ${name}`);
    this.settings.bpe_tables = words.join(", ");
  }

  /** @param {Figures | undefined} last */
  explain(last) {
    if (!last) return [];
    if (this.state !== "active") {
      return [{ text_key: "inactive.disabled", level: "note", values: { data_reads_per_s: last.data_reads_per_s }, text: "The extension is switched off." }];
    }
    const reads = last.cache_reads_per_s + last.data_reads_per_s;
    return [
      {
        text_key: "verdict.helps", level: "good", text: "It helps.",
        values: { reads_per_s: reads, hit_ratio_percent: last.hit_ratio_percent ?? 0, data_reads_per_s: last.data_reads_per_s },
      },
      { text_key: "saved.time", level: "good", values: { gain_us: 548, cache_reads_per_s: last.cache_reads_per_s, saved_ms_per_s: last.saved_ms_per_s ?? 0 }, text: "It saves time." },
      { text_key: "kept.lost", level: "note", values: { kept_percent: 92, lost_files: 3 }, text: "92 % of the cache was kept." },
      { text_key: "larger.room", level: "good", values: { used_percent: this.filled * 100 }, text: "A larger cache would not help." },
      {
        text_key: "bottleneck.none", level: "good", text: "It is not a bottleneck itself.",
        values: { cache_p99_us: last.cache_read_us?.p99 ?? 0, data_p50_us: last.data_read_us?.p50 ?? 0, lock_wait_percent: 0.02, device_errors: 0 },
      },
      { text_key: "of_a_newer_server", level: "note", values: {}, text: "A sentence that this page does not know yet is shown as the server wrote it." },
    ];
  }

  /** @param {{action: string, path?: string, size?: number}} wanted */
  plan(wanted) {
    const changes = [];
    /** @type {string | null} */
    let refused = null;
    if (wanted.action === "on") {
      if (wanted.path === "/nowhere") refused = "'/nowhere' does not exist; make the folder and give it to the server's user";
      changes.push({ what: "bpe_path", from: "", to: wanted.path ?? "", why: null });
      changes.push({ what: "bpe_size", from: "0", to: String(wanted.size ?? 0), why: "takes this much of the disk" });
      changes.push({ what: "innodb_buffer_pool_size", from: "128 MiB", to: "123 MiB", why: "makes room for the memory that the extension takes" });
    } else {
      changes.push({ what: "Cached pages", from: `${Math.round(this.filled * 65536)}`, to: "0", why: "the cache starts empty when it is switched on again" });
      changes.push({ what: "innodb_buffer_pool_size", from: "123 MiB", to: "128 MiB", why: "as it was before" });
    }
    const digest = refused ? null : `Settings-${this.settings.bpe_instances}.Request-${wanted.action}-${wanted.path}-${wanted.size}`;
    return { changes, digest, warnings: wanted.action === "on" ? ["The setting holds until the server is restarted."] : [], refused };
  }
}
