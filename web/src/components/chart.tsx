// A chart over time by uPlot, with a legend that shows the values under the pointer (or the newest), and the same in a table
// for those who do not see it.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock } from "../format";
import { dark, language } from "../state/preferences";
import { text } from "../state/text";

export interface Series {
  label: string;
  /** The name of a colour of the page's style sheet. */
  tone: string;
  values: (number | null)[];
  dash?: number[];
  width?: number;
  fill?: boolean;
  /** The right axis, with a format of its own. */
  right?: boolean;
}

export interface ChartProps {
  title: string;
  /** Seconds: since 1970, or elapsed if `elapsed` is set. */
  times: number[];
  series: Series[];
  format: (value: number) => string;
  formatRight?: (value: number) => string;
  note?: string;
  logarithmic?: boolean;
  elapsed?: boolean;
  /** The range of time shown; all of it without. */
  range?: [number, number];
  /** The values' range, such as 0 to 100 percent. */
  values?: [number, number];
  height?: number;
  /** Ticks at powers of two, for bytes. */
  binary?: boolean;
  heading?: "h2" | "h3";
}

/** Steps of the axes: seconds as clocks count them, and bytes in powers of two. */
const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];
const BYTE_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function options(newest: { current: ChartProps }, width: number, onIndex: (index: number | null) => void): uPlot.Options {
  const props = newest.current;
  const axis = { stroke: colour("muted"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const time = props.elapsed ? (value: number) => String(Math.round(value)) : (value: number) => clock(value * 1000);
  const plain = (value: number | null, format: (value: number) => string) => (value === null ? "" : format(value));
  const right = props.formatRight;
  const y: uPlot.Scale = props.logarithmic ? { distr: 3 }
    : { range: (_, __, most) => props.values ?? [0, most > 0 ? most * 1.08 : 1] };
  return {
    width,
    height: props.height ?? 190,
    legend: { show: false },
    cursor: { y: false, drag: { setScale: false, x: false, y: false } },
    scales: {
      x: { time: false, range: (_, least, most) => newest.current.range ?? [least ?? 0, Math.max(most ?? 1, (least ?? 0) + 1)] },
      y,
      ...(right ? { right: { range: (_: uPlot, __: number, most: number): [number, number] => [0, most > 0 ? most * 1.08 : 1] } } : {}),
    },
    axes: [
      { ...axis, size: 30, space: 75, incrs: CLOCK_STEPS, values: (_, ticks) => ticks.map(time) },
      { ...axis, size: 66, space: 34, ...(props.binary ? { incrs: BYTE_STEPS } : {}), values: (_, ticks) => ticks.map((value) => plain(value, props.format)) },
      ...(right ? [{ ...axis, scale: "right", side: 1 as const, size: 60, grid: { show: false }, values: (_: uPlot, ticks: number[]) => ticks.map((value) => plain(value, right)) }] : []),
    ],
    series: [
      {},
      ...props.series.map((one): uPlot.Series => ({
        scale: one.right ? "right" : "y",
        stroke: colour(one.tone),
        width: one.width ?? 1.75,
        points: { show: false },
        spanGaps: false,
        ...(one.dash ? { dash: one.dash } : {}),
        ...(one.fill ? { fill: `${colour(one.tone)}22` } : {}),
      })),
    ],
    hooks: { setCursor: [(u) => onIndex(u.cursor.idx ?? null)] },
  };
}

export function Chart(props: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  // The plot asks for the range anew each time.
  const newest = useRef(props);
  newest.current = props;
  const [index, setIndex] = useState<number | null>(null);
  const data = [props.times, ...props.series.map((one) => one.values)] as uPlot.AlignedData;
  // What a plot is made of; the data changes without making it anew.
  const shape = [dark.value, language.value, props.title, ...props.series.map((one) => one.label + one.tone)].join("|");

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const made = new uPlot(options(newest, element.clientWidth || 300, setIndex), data, element);
    plot.current = made;
    const resized = new ResizeObserver(() => {
      if (element.clientWidth > 0 && element.clientWidth !== made.width) {
        made.setSize({ width: element.clientWidth, height: newest.current.height ?? 190 });
      }
    });
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    const made = plot.current;
    if (!made) return;
    made.setData(data);
  }, [props.times, props.series, props.range?.[0], props.range?.[1]]);

  const t = text.value;
  const Heading = props.heading ?? "h3";
  const last = props.times.length - 1;
  const shown = index !== null && index <= last ? index : last;
  const first = props.times[0];
  const described = first === undefined || props.elapsed ? props.title
    : t.charts.described(props.title, clock(first * 1000), clock(props.times[last]! * 1000));
  return (
    <figure class="chart card">
      <figcaption>
        <Heading>{props.title}</Heading>
        {props.note && <p class="note">{props.note}</p>}
        <ul class="legend">
          {props.series.map((one) => {
            const value = shown < 0 ? null : one.values[shown] ?? null;
            const format = one.right && props.formatRight ? props.formatRight : props.format;
            return (
              <li key={one.label}>
                <span class={`swatch ${one.dash ? "dashed" : ""}`} style={{ "--swatch": `var(--${one.tone})` }} aria-hidden="true" />
                {one.label} <b>{value === null ? "–" : format(value)}</b>
              </li>
            );
          })}
        </ul>
      </figcaption>
      <div ref={place} class="plot" role="img" aria-label={described} />
      {props.times.length === 0 && <p class="note">{t.charts.empty}</p>}
      <Table {...props} />
    </figure>
  );
}

/** The text alternative: the newest, mean, least and most of each line. */
function Table(props: ChartProps) {
  const t = text.value.charts;
  const [open, setOpen] = useState(false);
  return (
    <details class="as-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t.asTable}</summary>
      {open && (
        <div class="scroll" tabIndex={0} role="region" aria-label={props.title}>
          <table>
            <caption class="unseen">{props.title}</caption>
            <thead>
              <tr>
                <th scope="col">{t.series}</th>
                {[t.now, t.mean, t.least, t.most].map((title) => <th key={title} scope="col" class="number">{title}</th>)}
              </tr>
            </thead>
            <tbody>
              {props.series.map((one) => {
                const known = one.values.filter((value): value is number => value !== null);
                const format = one.right && props.formatRight ? props.formatRight : props.format;
                const cells = known.length === 0 ? [null, null, null, null]
                  : [one.values[one.values.length - 1] ?? null, known.reduce((a, b) => a + b, 0) / known.length, Math.min(...known), Math.max(...known)];
                return (
                  <tr key={one.label}>
                    <th scope="row">{one.label}</th>
                    {cells.map((value, i) => <td key={i} class="number">{value === null ? "–" : format(value)}</td>)}
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}
