// The experience page: a live load with and without the extension.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, ApiError } from "../api/client";
import type { Experience, Result, Run, RunMode, RunRequest, TestName } from "../api/types";
import { Chart } from "../components/chart";
import { useRepeated } from "../components/refresh";
import { dateAndClock, millis, number } from "../format";
import { addPoint, curvesOf } from "../state/curves";
import { current, lookAt } from "../state/server";
import { text } from "../state/text";
import { ResultCard } from "./result";
import { TaskSteps } from "./task";

const isOver = (run: Run | null | undefined) => !run || ["done", "failed", "stopped"].includes(run.state);

export function ExperiencePage() {
  const t = text.value.experience;
  const known = useSignal<Experience | null>(null);
  const problem = useSignal<ApiError | null>(null);
  const fail = (error: unknown) => {
    if (!(error instanceof ApiError)) throw error;
    if (error.status !== 0) problem.value = error;
  };
  const refresh = () => void api.experience().then((answer) => (known.value = answer), fail);
  useRepeated(refresh, 2000, null);

  const server = known.value?.server ?? null;
  useEffect(() => {
    if (server !== null) lookAt(server);
  }, [server]);
  const store = current.value;

  // Points come every second with the server's stream; what was missed comes with the next look at the run.
  const point = store?.runPoint.value ?? null;
  useEffect(() => {
    const run = known.value?.run;
    if (known.value && run && point && run.id === point.run) {
      known.value = { ...known.value, run: { ...run, points: addPoint(run.points, point) } };
    }
  }, [point]);

  async function act(call: () => Promise<unknown>): Promise<void> {
    problem.value = null;
    try {
      await call();
    } catch (error) {
      fail(error);
    }
    refresh();
  }

  const run = known.value?.run ?? null;
  const running = !isOver(run);
  const state = store?.latest?.state ?? null;
  const on = state === "active";
  const switching = store?.task.value?.state === "running";
  return (
    <section aria-labelledby="experience-title">
      <h1 id="experience-title">{t.title}</h1>
      {known.value?.server && <p class="note">{t.explanation(known.value.server)}</p>}
      {known.value === null ? <p class="note">{text.value.loading}</p>
        : !known.value.available ? <p class="banner plain">{t.unavailable}</p>
        : (
          <>
            {known.value.missing && <p class="banner warn" lang="en">{known.value.missing}</p>}
            <div class="experience">
              <RunForm tests={known.value.tests} running={running} onStart={(wanted) => void act(() => api.run(wanted))} />
              <div class="experience-live">
                {running && run && (
                  <div class="card live-controls" role="status">
                    <span class="pulse" aria-hidden="true" />
                    <b>{t.running(nameOf(run), phaseText(run))}</b>
                    <button type="button" onClick={() => void act(api.stop)}>{t.stop}</button>
                    {run.mode === "manual" && (
                      <button type="button" role="switch" aria-checked={on} class="toggle" disabled={switching || state === null}
                        onClick={() => void act(() => api.switch(store!.id, { action: on ? "off" : "on" }))}>
                        <span class="knob" aria-hidden="true" />
                        <span class="toggle-text">{switching ? text.value.switch.busy : on ? t.turnOff : t.turnOn}</span>
                      </button>
                    )}
                  </div>
                )}
                <div role="alert">
                  {problem.value && <p class="banner bad"><span lang="en">{problem.value.message} {problem.value.advice}</span></p>}
                  {run?.state === "failed" && <p class="banner bad">{t.failed} <span lang="en">{run.error}</span></p>}
                  {store?.unreachable.value && <p class="banner bad" data-banner="server">{store.unreachable.value.error}</p>}
                </div>
                {store?.task.value?.state === "failed" && <TaskSteps task={store.task.value} />}
                {run ? <RunChart run={run} /> : <div class="card empty-chart"><p class="note">{t.nothing}</p></div>}
                {run && <ResultCard run={run} />}
              </div>
            </div>
            <Results results={known.value.results} onFail={fail} />
          </>
        )}
    </section>
  );
}

/** What was run. */
const nameOf = (run: { test: TestName }) => text.value.experience.tests[run.test] ?? run.test;

function phaseText(run: Run): string {
  const phases: Record<string, string> = text.value.experience.phases;
  const phase = run.phase ?? (run.mode === "manual" ? "manual" : run.state);
  return phases[phase] ?? phase;
}

function RunForm(props: { tests: TestName[]; running: boolean; onStart: (wanted: RunRequest) => void }) {
  const t = text.value.experience;
  const test = useSignal<TestName>(props.tests[0] ?? "oltp_read_only");
  const mode = useSignal<RunMode>("compare");
  const sql = useSignal("");
  const threads = useSignal(16);
  const seconds = useSignal(30);
  return (
    <form class="card run-form" onSubmit={(event) => {
      event.preventDefault();
      props.onStart({
        test: test.value, mode: mode.value, threads: threads.value, seconds: seconds.value,
        ...(test.value === "sql" ? { sql: sql.value } : {}),
      });
    }}>
      <label class="field">
        <span>{t.test}</span>
        <select name="test" value={test.value} onChange={(event) => (test.value = event.currentTarget.value as TestName)}>
          {props.tests.map((one) => <option key={one} value={one}>{t.tests[one] ?? one}</option>)}
        </select>
      </label>
      {test.value === "sql" && (
        <label class="field">
          <span>{t.sql}</span>
          <textarea name="sql" rows={5} required spellcheck={false} value={sql.value} aria-describedby="sql-hint"
            onInput={(event) => (sql.value = event.currentTarget.value)} />
          <small id="sql-hint">{t.sqlHint}</small>
        </label>
      )}
      <fieldset class="choices">
        <legend>{t.mode}</legend>
        {(["compare", "manual"] as const).map((one) => (
          <label key={one} class="choice">
            <input type="radio" name="mode" value={one} checked={mode.value === one} onChange={() => (mode.value = one)} />
            <span>{t.modes[one]}<small>{t.modeHints[one]}</small></span>
          </label>
        ))}
      </fieldset>
      <div class="pair">
        <label class="field">
          <span>{t.threads}</span>
          <input type="number" name="threads" min={1} max={256} required value={threads.value} onInput={(event) => (threads.value = Number(event.currentTarget.value))} />
        </label>
        <label class="field">
          <span>{t.seconds}</span>
          <input type="number" name="seconds" min={3} max={3600} required value={seconds.value} onInput={(event) => (seconds.value = Number(event.currentTarget.value))} />
        </label>
      </div>
      <button type="submit" class="primary" disabled={props.running}>{t.start}</button>
    </form>
  );
}

function RunChart(props: { run: Run }) {
  const t = text.value.experience;
  const curves = curvesOf(props.run);
  const until = Math.max(props.run.mode === "compare" ? props.run.seconds : 10, curves.times[curves.times.length - 1] ?? 0);
  return (
    <Chart title={t.chart} heading="h2" elapsed height={260} times={curves.times} range={[0, until]} format={number} formatRight={millis} note={t.elapsed}
      series={[
        { label: `${t.off} · QPS`, tone: "data", values: curves.off.qps, width: 2.5 },
        { label: `${t.on} · QPS`, tone: "cache", values: curves.on.qps, width: 2.5 },
        { label: `${t.off} · p95`, tone: "data", values: curves.off.p95, dash: [3, 4], width: 1.25, right: true },
        { label: `${t.on} · p95`, tone: "cache", values: curves.on.p95, dash: [3, 4], width: 1.25, right: true },
      ]} />
  );
}

function Results(props: { results: Result[]; onFail: (error: unknown) => void }) {
  const t = text.value.experience;
  async function keep(result: Result, format: "json" | "html"): Promise<void> {
    try {
      const address = URL.createObjectURL(await api.result(result.id, format));
      const link = document.createElement("a");
      link.href = address;
      link.download = `bpe-${result.test}-${result.id}.${format}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 10_000);
    } catch (error) {
      props.onFail(error);
    }
  }
  const rows = props.results;
  return (
    <section class="card results" aria-label={t.results}>
      <h2>{t.results}</h2>
      {rows.length === 0 ? <p class="note">{t.noResults}</p> : (
        <ul>
          {rows.map((result) => (
            <li key={result.id}>
              <span>{nameOf(result)}{result.at_ms ? `, ${dateAndClock(result.at_ms)}` : ""}</span>
              <GainText result={result} />
              <button type="button" aria-label={t.download(t.json, result.id)} onClick={() => void keep(result, "json")}>{t.json}</button>
              <button type="button" aria-label={t.download(t.page, result.id)} onClick={() => void keep(result, "html")}>{t.page}</button>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function GainText(props: { result: Result }) {
  const { result } = props;
  if (!result.off || !result.on) return null;
  return <span class="note">{number(result.off.qps)} → {number(result.on.qps)} QPS</span>;
}
