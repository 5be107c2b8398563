import type { Run } from "../api/types";
import { gain, millis, number } from "../format";
import { text } from "../state/text";

/** What a comparison found: both sides, and the gain beside the reference's. */
export function ResultCard(props: { run: Run }) {
  const t = text.value.experience;
  const run = props.run;
  if (!run.off && !run.on) return null;
  const most = Math.max(run.off?.qps ?? 0, run.on?.qps ?? 0, 1);
  const reference = run.reference_gain_percent;
  const own = run.gain_percent;
  const widest = Math.max(own ?? 0, reference ?? 0, 1);
  const row = (label: string, tone: string, side: Run["off"]) => side && (
    <tr>
      <th scope="row">{label}</th>
      <td class="wide-bar"><span class="bar-track" aria-hidden="true"><span class={`bar-fill ${tone}`} style={{ width: `${(side.qps * 100) / most}%` }} /></span></td>
      <td class="number"><b>{number(Math.round(side.qps))}</b> QPS</td>
      <td class="number">p95 {millis(side.p95_ms)}</td>
    </tr>
  );
  return (
    <section class="card result" aria-label={t.result} data-result={run.state}>
      <h2>{t.result}</h2>
      <table class="sides">
        <tbody>
          {row(t.off, "data", run.off)}
          {row(t.on, "cache", run.on)}
        </tbody>
      </table>
      {own !== null && (
        <div class="gains">
          <div class={`gain ${own > 0 ? "good" : "warn"}`}>
            <span>{t.gain}</span>
            <b data-gain>{gain(own)}</b>
            <span class="bar-track" aria-hidden="true"><span class="bar-fill cache" style={{ width: `${(Math.max(0, own) * 100) / widest}%` }} /></span>
          </div>
          {reference !== null && (
            <div class="gain reference">
              <span>{t.reference}</span>
              <b>{gain(reference)}</b>
              <span class="bar-track" aria-hidden="true"><span class="bar-fill muted" style={{ width: `${(Math.max(0, reference) * 100) / widest}%` }} /></span>
            </div>
          )}
          {reference !== null && <p class="note">{own >= reference ? t.better : t.worse}. {t.referenceNote}</p>}
        </div>
      )}
    </section>
  );
}
