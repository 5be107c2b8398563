import { useSignal } from "@preact/signals";
import type { Figures } from "../api/types";
import { Chart, type Series } from "../components/chart";
import { bytes, bytesPerSecond, micros, number, percent } from "../format";
import type { ServerStore } from "../state/server";
import { text } from "../state/text";

const SPANS = [1, 5, 15];
const DASHES: Record<string, number[] | undefined> = { p50: undefined, p95: [6, 3], p99: [2, 3] };

/** Live charts of the last minutes. */
export function ChartsView(props: { store: ServerStore }) {
  const t = text.value.charts;
  const span = useSignal(5);
  const all = props.store.figures.value;
  const until = (all[all.length - 1]?.at_ms ?? Date.now()) / 1000;
  const range: [number, number] = [until - span.value * 60, until];
  const figures = all.filter((one) => one.at_ms / 1000 >= range[0]);
  const times = figures.map((one) => one.at_ms / 1000);
  const refused = all[all.length - 1]?.latency_refused;
  const line = (label: string, tone: string, pick: (figures: Figures) => number | null, more: Partial<Series> = {}): Series =>
    ({ label, tone, values: figures.map(pick), ...more });
  // A logarithmic axis has no place for nothing.
  const quantiles = (label: (quantile: string) => string, tone: string, pick: (figures: Figures) => Figures["cache_read_us"]) =>
    (["p50", "p95", "p99"] as const).map((q) => {
      const dash = DASHES[q];
      return line(label(q), tone, (f) => pick(f)?.[q] || null, { width: q === "p50" ? 2.25 : 1.25, ...(dash ? { dash } : {}) });
    });
  const common = { times, range };
  return (
    <>
      <h2 class="unseen">{t.title}</h2>
      <div class="bar-of-controls" role="group" aria-label={t.span}>
        {SPANS.map((minutes) => (
          <button key={minutes} type="button" class="chip" aria-pressed={span.value === minutes} onClick={() => (span.value = minutes)}>
            {t.minutes(number(minutes))}
          </button>
        ))}
      </div>
      <div class="charts">
        <Chart {...common} title={t.qps} format={number}
          series={[line(t.queries, "accent", (f) => f.qps, { fill: true }), line(t.tps, "muted", (f) => f.tps)]} />
        <Chart {...common} title={t.latency} note={refused ? t.latencyRefused : t.latencyNote} format={micros} logarithmic
          series={[...quantiles(t.cacheSeries, "cache", (f) => f.cache_read_us), ...quantiles(t.dataSeries, "data", (f) => f.data_read_us)]} />
        <Chart {...common} title={t.hitRatio} format={percent} values={[0, 100]}
          series={[line(t.cacheHits, "cache", (f) => f.hit_ratio_percent, { fill: true }), line(t.poolShare, "pool", (f) => f.pool_hit_percent)]} />
        <Chart {...common} title={t.reads} format={number}
          series={[line(t.fromCache, "cache", (f) => f.cache_reads_per_s, { fill: true }), line(t.fromData, "data", (f) => f.data_reads_per_s, { fill: true })]} />
        <Chart {...common} title={t.savedBytes} format={bytesPerSecond} binary
          series={[line(t.saved, "cache", (f) => f.saved_bytes_per_s, { fill: true })]} />
        <Chart {...common} title={t.written} format={bytesPerSecond} binary
          series={[line(t.toCache, "cache", (f) => f.cache_written_bytes_per_s, { fill: true }), line(t.toData, "data", (f) => f.data_written_bytes_per_s)]} />
        <Chart {...common} title={t.memory} format={bytes} binary
          series={[line(t.memorySeries, "accent", (f) => f.memory_bytes, { fill: true })]} />
      </div>
    </>
  );
}
