// The points of a run as two curves over the same time: without and with the extension.

import type { Run, RunPoint } from "../api/types";

export interface Curves {
  /** Seconds from the beginning of a phase (comparison) or of the run (by hand). */
  times: number[];
  off: { qps: (number | null)[]; p95: (number | null)[] };
  on: { qps: (number | null)[]; p95: (number | null)[] };
}

const isOn = (point: RunPoint) => (point.phase === "on" ? true : point.phase === "off" ? false : point.enabled);

export function curvesOf(run: Pick<Run, "mode" | "points">): Curves {
  const compare = run.mode === "compare";
  // While a comparison prepares or fills the cache, its points belong to neither curve.
  const points = compare ? run.points.filter((point) => point.phase === "on" || point.phase === "off") : run.points;
  const began: Record<string, number> = {};
  const off = new Map<number, RunPoint>();
  const on = new Map<number, RunPoint>();
  let before: RunPoint | null = null;
  for (const point of points) {
    const key = compare ? point.phase : "run";
    began[key] ??= point.at_ms;
    const second = Math.round((point.at_ms - began[key]!) / 1000);
    (isOn(point) ? on : off).set(second, point);
    // The curve of a run by hand changes its colour where the switch was turned, without a gap.
    if (!compare && before && isOn(before) !== isOn(point)) (isOn(before) ? on : off).set(second, point);
    before = point;
  }
  const times = [...new Set([...off.keys(), ...on.keys()])].sort((a, b) => a - b);
  const lines = (curve: Map<number, RunPoint>) => ({
    qps: times.map((second) => curve.get(second)?.qps ?? null),
    p95: times.map((second) => curve.get(second)?.p95_ms ?? null),
  });
  return { times, off: lines(off), on: lines(on) };
}

/** Points of a stream added to those known, each once. */
export function addPoint(points: RunPoint[], point: RunPoint): RunPoint[] {
  return points.some((one) => one.at_ms === point.at_ms) ? points : [...points, point];
}
