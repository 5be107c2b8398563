// The one thing to see at a glance: whether the extension helps. Everything comes from the figures of the last seconds.

import { ALIKE, FULL, type Figures, HALF, IDLE, LITTLE, type State } from "../api/figures";

/** Seconds that are looked at together, so that the answer does not flicker. */
export const LOOKED_AT = 10;

export type Verdict =
  | { kind: "helps" | "alike" | "costs" | "warming" | "little"; hitPercent: number; savedReads: number; savedBytes: number; speed: Speed | null }
  | { kind: "off" | "bypass"; dataReads: number | null }
  | { kind: "idle" | "passive" | "failed" | "not installed" | "waiting" | "unreachable" };

/** Medians in microseconds. */
export interface Speed {
  cache: number;
  data: number;
  times: number;
}

const mean = (values: number[]) => (values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length);

/** The newest medians of both disks. */
function speedOf(figures: Figures[]): Speed | null {
  const newest = (pick: (figures: Figures) => number | undefined) => {
    for (let i = figures.length - 1; i >= 0; i--) {
      const value = pick(figures[i]!);
      if (value !== undefined && value > 0) return value;
    }
    return undefined;
  };
  const cache = newest((one) => one.cache_read_us?.p50);
  const data = newest((one) => one.data_read_us?.p50);
  return cache === undefined || data === undefined ? null : { cache, data, times: data / cache };
}

export function verdictOf(all: Figures[], unreachable: boolean, known: State | null): Verdict {
  if (unreachable) return { kind: "unreachable" };
  const newest = all[all.length - 1];
  const state = newest?.state ?? known;
  if (state === "passive" || state === "failed" || state === "not installed") return { kind: state };
  if (!newest) return { kind: "waiting" };
  const figures = all.slice(-LOOKED_AT).filter((one) => one.state === newest.state);
  const fromCache = mean(figures.map((one) => one.cache_reads_per_s));
  if (state === "disabled" || state === "bypass") {
    const fromData = mean(figures.map((one) => one.data_reads_per_s));
    return { kind: state === "bypass" ? "bypass" : "off", dataReads: fromData > 0 ? fromData : null };
  }
  // Of the reads that the cache was asked for, as everywhere.
  const asked = fromCache + mean(figures.map((one) => one.misses_per_s));
  if (asked < IDLE) return { kind: "idle" };
  const hitPercent = (fromCache * 100) / asked;
  const speed = speedOf(figures);
  const filling = newest.bytes_cached < (newest.capacity_bytes * FULL) / 100 && newest.admitted_per_s >= 1;
  const kind = speed && hitPercent >= LITTLE && Math.abs(1 - speed.cache / speed.data) * 100 < ALIKE ? "alike"
    : speed && speed.times < 1 ? "costs"
    : filling && hitPercent < HALF ? "warming" : hitPercent < LITTLE ? "little" : "helps";
  return {
    kind,
    hitPercent,
    savedReads: fromCache,
    savedBytes: mean(figures.map((one) => one.saved_bytes_per_s)),
    speed,
  };
}
