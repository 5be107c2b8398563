import type { Instance } from "../api/types";
import { compact, number, percent } from "../format";
import type { ServerStore } from "../state/server";
import { text } from "../state/text";

/** A map of the instances: the more of the accesses one has, the stronger its colour. */
export function InstancesView(props: { store: ServerStore }) {
  const t = text.value.instances;
  const instances = props.store.details.value?.instances ?? [];
  const hottest = Math.max(0, ...instances.map((one) => one.share));
  const fair = instances.length > 0 ? 100 / instances.length : 0;
  return (
    <section aria-labelledby="instances-title">
      <h2 id="instances-title">{t.title}</h2>
      <p class="note">{t.explanation}</p>
      {instances.length === 0 ? <p class="note">{t.none}</p> : (
        <>
          <p>{t.hottest(percent(hottest), percent(fair))}</p>
          <ul class="instance-map">{instances.map((one) => <Cell key={one.instance} instance={one} hottest={hottest} />)}</ul>
        </>
      )}
    </section>
  );
}

function Cell(props: { instance: Instance; hottest: number }) {
  const t = text.value.instances;
  const one = props.instance;
  const waits = one.lock_accesses > 0 ? (one.lock_waits * 100) / one.lock_accesses : 0;
  const reads = one.hits + one.misses;
  const strength = props.hottest > 0 ? one.share / props.hottest : 0;
  return (
    <li class="card instance" style={{ "--strength": `${Math.round(12 + strength * 58)}%` }}>
      <h3>{t.instance} {one.instance}</h3>
      <p class="big">{percent(one.share)}<span class="unseen"> {t.share}</span></p>
      <dl>
        <div><dt>{t.waits}</dt><dd title={t.waitsOf(number(one.lock_waits), number(one.lock_accesses), percent(waits, 3))}>{number(one.lock_waits)} <small>({percent(waits, 2)})</small></dd></div>
        <div><dt>{t.pages}</dt><dd>{compact(one.pages)} <small>/ {compact(one.capacity)}</small></dd></div>
        <div><dt>{t.hitRatio}</dt><dd>{reads > 0 ? percent((one.hits * 100) / reads) : "–"}</dd></div>
      </dl>
    </li>
  );
}
