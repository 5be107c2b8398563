import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Figures, RunPoint } from "../../src/api/types";
import { LineCutter } from "../../src/api/live";
import { sortRows } from "../../src/components/sorted-table";
import { addPoint, curvesOf } from "../../src/state/curves";
import { addressOf, parseRoute, type Route } from "../../src/state/route";
import { mergeEvents, mergeFigures } from "../../src/state/server";
import { candidate, findToken, linkRefused, refused, token, tokenAdmitted, tokenInFragment, tokenRefused } from "../../src/state/session";
import { verdictOf } from "../../src/state/verdict";

const figures = (at: number, more: Partial<Figures> = {}): Figures => ({
  at_ms: at, interval_s: 1, state: "active", state_reason: "", async_mode: "libaio", uptime_s: 1, qps: 100, tps: 5, threads_running: 1, connections: 1, pool_reads_per_s: 5000,
  cache_reads_per_s: 90, data_reads_per_s: 10, misses_per_s: 10, misses_returned_per_s: 0, innodb_reads_per_s: 100, unseen_reads_per_s: 0, pool_hit_percent: 98, hit_ratio_percent: 90, hit_ratio_total_percent: 90,
  cache_read_us: { p50: 100, p95: 200, p99: 300 }, data_read_us: { p50: 1000, p95: 2000, p99: 3000 }, latency_refused: false, saved_reads_total: 0, saved_bytes_per_s: 0,
  saved_bytes_total: 0, gain_us: 900, saved_ms_per_s: 0, cache_written_bytes_per_s: 0, cache_written_bytes_24h: 0, data_written_bytes_per_s: 0,
  pages_cached: 0, bytes_cached: 100, capacity_bytes: 100, memory_bytes: 1, pool_bytes: 1, admitted_per_s: 0, rejected_per_s: 0,
  evicted_per_s: 0, invalidated_per_s: 0, dropped_staging_full_per_s: 0, write_limit_rejected_per_s: 0,
  lock_accesses_per_s: 0, lock_wait_percent: null, device_errors: 0, reads_given_up: 0, failed_proofs: 0, audit_suspicions: 0, suspended_files: 0, damaged_pages: 0, ...more,
});

test("the verdict follows the figures", () => {
  const kind = (more: Partial<Figures>) => verdictOf([figures(1, more)], false, null).kind;
  assert.equal(kind({}), "helps");
  assert.equal(kind({ cache_reads_per_s: 5, misses_per_s: 95 }), "little");
  assert.equal(kind({ cache_reads_per_s: 5, misses_per_s: 95, bytes_cached: 10, admitted_per_s: 50 }), "warming");
  assert.equal(kind({ cache_read_us: { p50: 960, p95: 2000, p99: 2000 } }), "alike");
  assert.equal(kind({ cache_read_us: { p50: 2000, p95: 2000, p99: 2000 } }), "costs");
  assert.equal(kind({ cache_reads_per_s: 0, misses_per_s: 0 }), "idle");
  // Reads of data files that the cache was not asked for do not count, as in `bpe status --explain`.
  assert.equal(kind({ data_reads_per_s: 10_000 }), "helps");
  assert.equal(kind({ state: "disabled" }), "off");
  assert.equal(kind({ state: "failed" }), "failed");
  assert.equal(verdictOf([figures(1)], true, null).kind, "unreachable");
  assert.equal(verdictOf([], false, "not installed").kind, "not installed");
  assert.equal(verdictOf([], false, null).kind, "waiting");
});

test("the verdict looks at seconds of the same state only", () => {
  const off = figures(1, { state: "disabled", cache_reads_per_s: 0, data_reads_per_s: 100000 });
  const verdict = verdictOf([off, off, figures(3)], false, null);
  assert.ok(verdict.kind === "helps" && verdict.hitPercent === 90 && verdict.speed?.times === 10);
});

test("figures are kept once, in order", () => {
  const merged = mergeFigures([figures(1), figures(3)], [figures(2), figures(3)]);
  assert.deepEqual(merged.map((one) => one.at_ms), [1, 2, 3]);
  const many = mergeFigures(Array.from({ length: 900 }, (_, i) => figures(i)), [figures(900)]);
  assert.deepEqual([many.length, many[0]?.at_ms], [900, 1]);
});

test("events are kept once, also those that come while older ones are fetched", () => {
  const event = (at_ms: number) => ({ at_ms, server: "a", level: "info" as const, text: "x" });
  assert.deepEqual(mergeEvents([event(1), event(2)], [event(2), event(3)]).map((one) => one.at_ms), [1, 2, 3]);
  assert.deepEqual(mergeEvents([], [event(4)]), [event(4)]);
});

test("lines are cut wherever they arrive in pieces", () => {
  const cutter = new LineCutter();
  assert.deepEqual(cutter.push('{"a":1}\n{"b"'), ['{"a":1}']);
  assert.deepEqual(cutter.push(":2}"), []);
  assert.deepEqual(cutter.push("\n\n"), ['{"b":2}']);
});

test("the token leaves the address", () => {
  assert.deepEqual(tokenInFragment("#token=a%2Bb"), { token: "a+b", rest: "" });
  assert.deepEqual(tokenInFragment("#token=abc&/servers/1/charts"), { token: "abc", rest: "/servers/1/charts" });
  assert.deepEqual(tokenInFragment("#/experience"), { token: null, rest: "/experience" });
  assert.deepEqual(tokenInFragment(""), { token: null, rest: "" });
  assert.deepEqual(tokenInFragment("#token=%"), { token: "%", rest: "" });
});

/** Opens a link in this tab. */
function open(fragment: string): void {
  location.hash = fragment;
  findToken();
}

test("a link replaces the token only once it is admitted", () => {
  sessionStorage.clear();
  token.value = null;
  open("#token=good");
  assert.equal(token.value, "good");
  assert.equal(candidate.value, null);
  for (const wrong of ["wrong", "good "]) {
    open(`#token=${encodeURIComponent(wrong)}`);
    assert.deepEqual([token.value, candidate.value], ["good", wrong]);
    // Reloaded before the console has answered.
    token.value = null;
    open("");
    assert.equal(token.value, "good");
    tokenRefused(wrong);
    assert.deepEqual([token.value, candidate.value, linkRefused.value, refused.value], ["good", null, true, false]);
  }
  // A late answer concerns no newer link.
  open("#token=first");
  open("#token=second");
  tokenRefused("first");
  tokenAdmitted("first");
  assert.deepEqual([token.value, candidate.value, linkRefused.value], ["good", "second", false]);
  tokenAdmitted("second");
  assert.deepEqual([token.value, candidate.value], ["second", null]);
  token.value = null;
  open("");
  assert.equal(token.value, "second");
});

test("a token that is no longer good gives way to the link's", () => {
  sessionStorage.clear();
  token.value = null;
  open("#token=old");
  open("#token=new");
  tokenRefused("old");
  assert.deepEqual([token.value, refused.value], [null, true]);
  tokenAdmitted("new");
  assert.deepEqual([token.value, refused.value], ["new", false]);
  // Neither is good: the form asks.
  open("#token=newer");
  tokenRefused("new");
  tokenRefused("newer");
  assert.deepEqual([token.value, candidate.value, refused.value, linkRefused.value], [null, null, true, false]);
});

test("addresses and views fit each other", () => {
  const routes: Route[] = [{ page: "servers" }, { page: "experience" }, { page: "server", id: "a/b", view: "tables" }];
  for (const route of routes) assert.deepEqual(parseRoute(addressOf(route)), route);
  assert.deepEqual(parseRoute("#/servers/1/nothing"), { page: "server", id: "1", view: "overview" });
  assert.deepEqual(parseRoute("#/servers/%"), { page: "server", id: "%", view: "overview" });
  assert.deepEqual(parseRoute("#/somewhere"), { page: "servers" });
});

const point = (at: number, phase: RunPoint["phase"], qps: number, enabled: boolean): RunPoint => ({ run: "r", at_ms: at * 1000, phase, qps, p95_ms: 1, enabled });

test("a comparison's phases lie over each other", () => {
  const curves = curvesOf({ mode: "compare", points: [point(10, "off", 1, false), point(11, "off", 2, false), point(12, "warm", 9, true), point(20, "on", 5, true), point(21, "on", 6, true)] });
  assert.deepEqual(curves.times, [0, 1]);
  assert.deepEqual([curves.off.qps, curves.on.qps], [[1, 2], [5, 6]]);
});

test("a run by hand changes its curve with the switch, without a gap", () => {
  const curves = curvesOf({ mode: "manual", points: [point(0, "manual", 1, false), point(1, "manual", 5, true), point(2, "manual", 6, true)] });
  assert.deepEqual(curves.off.qps, [1, 5, null]);
  assert.deepEqual(curves.on.qps, [null, 5, 6]);
});

test("a point counts once", () => {
  const one = point(1, "on", 1, true);
  assert.equal(addPoint(addPoint([], one), one).length, 1);
});

test("rows are sorted by numbers and by names", () => {
  const rows = [{ n: 2, s: "b" }, { n: 10, s: "a" }];
  assert.deepEqual(sortRows(rows, (row) => row.n, true).map((row) => row.n), [10, 2]);
  assert.deepEqual(sortRows(rows, (row) => row.s, false).map((row) => row.s), ["a", "b"]);
});
