// What a glance should tell: whether it helps, the figures of this second, and the server's basic information.

import type { ComponentChildren } from "preact";
import type { Figures, Server } from "../api/types";
import { Sparkline } from "../components/sparkline";
import { bytes, bytesPerSecond, micros, number, percent } from "../format";
import type { ServerStore } from "../state/server";
import { text } from "../state/text";
import { type Verdict, verdictOf } from "../state/verdict";
import { ExplainPanel } from "./explain";

export function Overview(props: { store: ServerStore; server: Server | null }) {
  const { store, server } = props;
  const figures = store.figures.value;
  const newest = figures[figures.length - 1] ?? null;
  const verdict = verdictOf(figures, store.unreachable.value !== null, server?.state ?? null);
  return (
    <>
      <div class="hero">
        <VerdictCard verdict={verdict} />
        <Tiers newest={newest} />
      </div>
      {newest && <Tiles figures={figures} newest={newest} />}
      <div class="halves">
        <ExplainPanel sentences={store.details.value?.explain ?? []} />
        <Information server={server} newest={newest} />
      </div>
    </>
  );
}

const TONE: Record<Verdict["kind"], string> = {
  helps: "good", alike: "warm", costs: "bad", warming: "warm", little: "warn", idle: "plain", off: "plain", bypass: "warn", passive: "warn", failed: "bad",
  "not installed": "plain", waiting: "plain", unreachable: "bad",
};

function VerdictCard(props: { verdict: Verdict }) {
  const t = text.value.verdict;
  const verdict = props.verdict;
  let title: string;
  let lines: string[] = [];
  switch (verdict.kind) {
    case "helps":
    case "alike":
    case "costs":
    case "warming":
    case "little": {
      const hits = percent(verdict.hitPercent);
      title = t[verdict.kind];
      lines = [
        verdict.kind === "warming" ? t.warmingBy(hits) : verdict.kind === "little" ? t.littleBy(hits) : t.helpsBy(hits),
        t.saved(number(Math.round(verdict.savedReads)), bytes(verdict.savedBytes)),
      ];
      if (verdict.speed) {
        const [cache, data] = [micros(verdict.speed.cache), micros(verdict.speed.data)];
        lines.push(verdict.kind === "costs" ? t.slower(cache, data) : verdict.kind === "alike" ? t.asFast(cache, data) : t.faster(cache, data, number(verdict.speed.times)));
      }
      break;
    }
    case "off":
      title = t.off;
      lines = [verdict.dataReads === null ? t.offUnknown : t.offText(number(Math.round(verdict.dataReads)))];
      break;
    case "bypass":
      title = t.bypass;
      lines = [verdict.dataReads === null ? t.bypassUnknown : t.bypassText(number(Math.round(verdict.dataReads)))];
      break;
    case "idle":
      [title, lines] = [t.idle, [t.idleText]];
      break;
    case "not installed":
      [title, lines] = [t.notInstalled, [t.notInstalledText]];
      break;
    case "waiting":
      [title, lines] = [t.waiting, []];
      break;
    default:
      title = t[verdict.kind];
  }
  const hit = "hitPercent" in verdict ? verdict.hitPercent : null;
  return (
    <section class={`card verdict ${TONE[verdict.kind]}`} aria-label={t.label} data-verdict={verdict.kind}>
      <Ring value={hit} />
      <div>
        <h2>{title}</h2>
        {lines.map((line, i) => <p key={i}>{line}</p>)}
      </div>
    </section>
  );
}

/** The hit ratio as a ring; the text beside it says the same. */
function Ring(props: { value: number | null }) {
  const around = 2 * Math.PI * 42;
  const part = ((props.value ?? 0) / 100) * around;
  return (
    <svg class="ring" viewBox="0 0 100 100" aria-hidden="true" data-hit={props.value?.toFixed(1)}>
      <circle cx="50" cy="50" r="42" class="ring-track" />
      <circle cx="50" cy="50" r="42" class="ring-part" stroke-dasharray={`${part} ${around}`} transform="rotate(-90 50 50)" />
      <text x="50" y="50" dominant-baseline="central" text-anchor="middle">{props.value === null ? "–" : percent(props.value, 0)}</text>
    </svg>
  );
}

/** Where the last second's pages were found. The pool's share dwarfs the rest, so the disks get a bar of their own. */
function Tiers(props: { newest: Figures | null }) {
  const t = text.value.tiers;
  const newest = props.newest;
  const disks = newest ? newest.cache_reads_per_s + newest.data_reads_per_s : 0;
  const cache = newest && disks > 0 ? (newest.cache_reads_per_s * 100) / disks : 0;
  return (
    <section class="card tiers" aria-label={t.title}>
      <h2>{t.title}</h2>
      {newest && (
        <>
          <div class="tier-bar pool-bar" aria-hidden="true"><span class="pool" style={{ width: `${newest.pool_hit_percent ?? 0}%` }} /></div>
          <p class="note">{t.poolNote(percent(newest.pool_hit_percent))}</p>
          {disks > 0 ? (
            <div class="tier-bar" aria-hidden="true">
              <span class="cache" style={{ width: `${cache}%` }} />
              <span class="data" style={{ width: `${100 - cache}%` }} />
            </div>
          ) : <p class="note">{t.none}</p>}
          <ul class="tier-legend">
            <li><span class="dot pool" aria-hidden="true" />{t.pool} <b>{t.perSecond(number(Math.round(newest.pool_reads_per_s)))}</b></li>
            <li><span class="dot cache" aria-hidden="true" />{t.cache} <b>{t.perSecond(number(Math.round(newest.cache_reads_per_s)))}</b> {micros(newest.cache_read_us?.p50)}</li>
            <li><span class="dot data" aria-hidden="true" />{t.data} <b>{t.perSecond(number(Math.round(newest.data_reads_per_s)))}</b> {micros(newest.data_read_us?.p50)}</li>
          </ul>
        </>
      )}
    </section>
  );
}

function Tile(props: { label: string; value: string; small?: string; values: (number | null)[]; tone: string; name: string }) {
  return (
    <div class="card tile" data-tile={props.name}>
      <dt>{props.label}</dt>
      <dd>
        <b>{props.value}</b>
        {props.small && <small>{props.small}</small>}
        <Sparkline values={props.values} tone={props.tone} />
      </dd>
    </div>
  );
}

function Tiles(props: { figures: Figures[]; newest: Figures }) {
  const t = text.value.tiles;
  const { newest } = props;
  const recent = props.figures.slice(-120);
  const line = (pick: (figures: Figures) => number | null) => recent.map(pick);
  const notTimed = newest.latency_refused ? t.refused : t.notTimed;
  return (
    <dl class="tiles" aria-label={t.label}>
      <Tile name="qps" label={t.qps} value={number(newest.qps)} small={t.tps(number(newest.tps))} tone="accent" values={line((f) => f.qps)} />
      <Tile name="hit" label={t.hitRatio} value={percent(newest.hit_ratio_percent)} small={t.hitTotal(percent(newest.hit_ratio_total_percent))}
        tone="cache" values={line((f) => f.hit_ratio_percent)} />
      <Tile name="data-reads" label={t.dataReads} value={`${number(Math.round(newest.data_reads_per_s))}/s`} small={t.saved(number(Math.round(newest.cache_reads_per_s)))}
        tone="data" values={line((f) => f.data_reads_per_s)} />
      <Tile name="saved" label={t.savedBytes} value={bytesPerSecond(newest.saved_bytes_per_s)} small={t.savedTotal(bytes(newest.saved_bytes_total))}
        tone="cache" values={line((f) => f.saved_bytes_per_s)} />
      <Tile name="cache-read" label={t.cacheRead} value={newest.cache_read_us ? micros(newest.cache_read_us.p50) : "–"}
        small={newest.cache_read_us ? t.p99(micros(newest.cache_read_us.p99)) : notTimed} tone="cache" values={line((f) => f.cache_read_us?.p50 ?? null)} />
      <Tile name="data-read" label={t.dataRead} value={newest.data_read_us ? micros(newest.data_read_us.p50) : "–"}
        small={newest.data_read_us ? t.p99(micros(newest.data_read_us.p99)) : notTimed} tone="data" values={line((f) => f.data_read_us?.p50 ?? null)} />
      <Tile name="written" label={t.written} value={bytesPerSecond(newest.cache_written_bytes_per_s)} small={t.written24h(bytes(newest.cache_written_bytes_24h))}
        tone="accent" values={line((f) => f.cache_written_bytes_per_s)} />
      <Tile name="memory" label={t.memory} value={bytes(newest.memory_bytes)} tone="accent" values={line((f) => f.memory_bytes)}
        small={newest.pool_bytes > 0 ? t.ofPool(percent((newest.memory_bytes * 100) / newest.pool_bytes)) : ""} />
    </dl>
  );
}

function Information(props: { server: Server | null; newest: Figures | null }) {
  const t = text.value.info;
  const { server, newest } = props;
  const modes: Record<string, string> = t.loadModes;
  const rows: [string, ComponentChildren][] = [];
  if (server) {
    rows.push(
      [t.flavour, server.version ? `${server.flavour} ${server.version}` : "–"],
      [t.address, <span class="path">{server.address}</span>],
      [t.dataDirectory, <span class="path">{server.data_directory || "–"}</span>],
      [t.pool, bytes(newest?.pool_bytes ?? server.pool_bytes)],
      [t.cache, newest && newest.capacity_bytes > 0 ? t.cacheUsed(bytes(newest.bytes_cached), bytes(newest.capacity_bytes)) : bytes(server.cache_bytes)],
      [t.path, <span class="path">{server.cache_path || "–"}</span>],
      [t.loadMode, modes[server.load_mode ?? ""] ?? (server.load_mode || "–")],
      [t.asyncMode, server.async_mode || "–"],
    );
  }
  if (newest) {
    rows.push(
      [t.connections, t.running(number(newest.threads_running), number(newest.connections))],
      [t.proofs, number(newest.failed_proofs)],
      [t.errors, number(newest.device_errors)],
    );
  }
  return (
    <section class="card" aria-label={t.title}>
      <h2>{t.title}</h2>
      <dl class="facts one-column">{rows.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
    </section>
  );
}
