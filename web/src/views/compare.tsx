// Serving and bypass in turn on a server at work: starting it, how far it is, and what was found.

import { useSignal } from "@preact/signals";
import { api, ApiError } from "../api/client";
import type { Comparing, Comparison, ComparisonRow } from "../api/types";
import { Chart } from "../components/chart";
import { gain, micros, number, percent } from "../format";
import type { ServerStore } from "../state/server";
import { text } from "../state/text";

export function CompareView(props: { store: ServerStore }) {
  const t = text.value.compare;
  const store = props.store;
  const problem = useSignal<ApiError | null>(null);
  const now = store.comparing.value;
  const running = now?.running === true;

  async function act(call: () => Promise<unknown>): Promise<void> {
    problem.value = null;
    try {
      await call();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.value = error;
    }
  }

  return (
    <section class="compare" aria-labelledby="compare-title">
      <h2 id="compare-title">{t.title}</h2>
      <p class="note">{t.explanation}</p>
      {running && now
        ? <Progress now={now} onStop={() => void act(() => api.stopComparing(store.id))} />
        : <Form disabled={store.unreachable.value !== null} onStart={(minutes, slice_s, refill) =>
            void act(async () => (store.comparing.value = await api.compare(store.id, { minutes, slice_s, refill })))} />}
      <div role="alert">
        {problem.value && <p class="banner bad"><span lang="en">{problem.value.message} {problem.value.advice}</span></p>}
        {!running && now?.error && <p class="banner bad">{t.refused} <span lang="en">{now.error} {now.advice}</span></p>}
      </div>
      {now?.found && <Found found={now.found} running={running} />}
    </section>
  );
}

function Form(props: { disabled: boolean; onStart: (minutes: number, slice: number, refill: boolean) => void }) {
  const t = text.value.compare;
  const minutes = useSignal(10);
  const slice = useSignal(10);
  const refill = useSignal(true);
  return (
    <form class="card compare-form" onSubmit={(event) => {
      event.preventDefault();
      props.onStart(minutes.value, slice.value, refill.value);
    }}>
      <div class="fields">
        <label class="field">
          <span>{t.minutes}</span>
          <input type="number" name="minutes" min="0.1" max="480" step="0.1" required value={minutes.value}
            onInput={(event) => (minutes.value = event.currentTarget.valueAsNumber)} />
        </label>
        <label class="field">
          <span>{t.slice}</span>
          <input type="number" name="slice" min="2" max="60" step="1" required value={slice.value} aria-describedby="slice-hint"
            onInput={(event) => (slice.value = event.currentTarget.valueAsNumber)} />
          <small id="slice-hint">{t.sliceHint}</small>
        </label>
      </div>
      <label class="choice">
        <input type="checkbox" name="refill" checked={refill.value} onChange={(event) => (refill.value = event.currentTarget.checked)} />
        <span>{t.refill}</span>
      </label>
      <button type="submit" class="primary" disabled={props.disabled}>{t.start}</button>
    </form>
  );
}

function Progress(props: { now: Comparing; onStop: () => void }) {
  const t = text.value.compare;
  const now = props.now;
  return (
    <div class="card live-controls" data-comparing={now.in_bypass ? "bypass" : "serving"}>
      <span class="pulse" aria-hidden="true" />
      <b>{now.pair === 0 ? t.watching : `${t.progress(number(now.pair), number(now.pairs), number(now.statements_per_s))} (${now.in_bypass ? t.bypass : t.serving})`}</b>
      <button type="button" onClick={props.onStop}>{t.stop}</button>
    </div>
  );
}

function Found(props: { found: Comparison; running: boolean }) {
  const t = text.value.compare;
  const found = props.found;
  const first = found.figures[0];
  const tone = found.hurt_percent !== null || found.verdict === "better" ? "good" : found.verdict === "worse" ? "warn" : "";
  return (
    <>
      <section class={`card verdict ${tone}`} aria-live="polite" data-compared={found.verdict}>
        <div>
          <h3>{verdict(found)}</h3>
          <p class="note">{t.pairs(number(found.pairs), number(found.pairs_for_a_verdict))}</p>
          {!props.running && found.why && <p lang="en">{found.why}</p>}
        </div>
      </section>
      {found.pairs > 0 && <Rows found={found} />}
      {first && first.differences.length > 1 && <Differences row={first} />}
      <section class="card" aria-labelledby="compare-notes">
        <h3 id="compare-notes">{t.notes}</h3>
        <ul class="compare-notes" lang="en">{found.notes.map((note) => <li key={note}>{note}</li>)}</ul>
      </section>
    </>
  );
}

function verdict(found: Comparison): string {
  const t = text.value.compare;
  if (found.hurt_percent !== null) return t.hurt(number(Math.round(found.hurt_after_s ?? 0)), percent(found.hurt_percent, 0));
  if (found.pairs === 0) return t.nothing;
  return t.found[found.verdict](gain(found.figures[0]?.percent));
}

const shown = (row: ComparisonRow, value: number | null) => (row.unit === "us" ? micros(value) : number(value));

function signed(row: ComparisonRow, value: number | null): string {
  if (value === null || value === 0) return value === 0 ? "0" : "–";
  return `${value < 0 ? "−" : "+"}${shown(row, Math.abs(value))}`;
}

function Rows(props: { found: Comparison }) {
  const t = text.value.compare;
  const names: Record<string, string> = t.figures;
  return (
    <div class="scroll card" tabIndex={0} role="region" aria-label={t.result}>
      <table class="compare-table">
        <caption class="unseen">{t.result}</caption>
        <thead>
          <tr>
            <th scope="col">{t.figure}</th>
            <th scope="col" class="number">{t.sides.serving}</th>
            <th scope="col" class="number">{t.sides.bypass}</th>
            <th scope="col" class="number">{t.difference}</th>
            <th scope="col" class="number">{t.interval}</th>
            <th scope="col">{t.result}</th>
          </tr>
        </thead>
        <tbody>
          {props.found.figures.map((row) => (
            <tr key={row.name} data-figure={row.name}>
              <th scope="row">{names[row.name] ?? <span lang="en">{row.title}</span>}</th>
              <td class="number">{shown(row, row.serving)}</td>
              <td class="number">{shown(row, row.bypass)}</td>
              <td class="number">{signed(row, row.difference)}{row.percent !== null && ` (${gain(row.percent)})`}</td>
              <td class="number">{row.low === null ? "–" : t.between(signed(row, row.low), signed(row, row.high))}</td>
              <td>{row.difference === null ? t.unmeasured : t.words[row.found]}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Differences(props: { row: ComparisonRow }) {
  const t = text.value.compare;
  const differences = props.row.differences;
  const edges = [0, ...differences].map((value) => value * 1.08);
  const least = Math.min(...edges);
  const most = Math.max(...edges);
  return (
    <Chart title={t.plot} note={t.plotNote} format={number} elapsed times={differences.map((_, index) => index + 1)}
      values={[least, most > least ? most : least + 1]} height={160}
      series={[
        { label: t.each, tone: "accent", values: differences },
        { label: t.middle, tone: "muted", dash: [6, 3], values: differences.map(() => props.row.difference) },
      ]} />
  );
}
