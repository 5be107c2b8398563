import type { Device } from "../api/types";
import { Bar } from "../components/bar";
import { Name } from "../components/name";
import { bytes, micros, number, percent } from "../format";
import type { ServerStore } from "../state/server";
import { text } from "../state/text";

/** The cache disks, each with its state and, where it does not work, the reason. */
export function DisksView(props: { store: ServerStore }) {
  const t = text.value.disks;
  const devices = props.store.details.value?.devices ?? [];
  return (
    <section aria-labelledby="disks-title">
      <h2 id="disks-title">{t.title}</h2>
      {devices.length === 0 ? <p class="note">{t.none}</p> : <ul class="disk-list">{devices.map((one) => <Disk key={one.path} device={one} />)}</ul>}
    </section>
  );
}

function Disk(props: { device: Device }) {
  const t = text.value.disks;
  const one = props.device;
  const used = one.segments > 0 ? ((one.segments - one.free_segments) * 100) / one.segments : 0;
  return (
    <li class="card disk">
      <h3 class="path"><Name text={one.path} /></h3>
      <p>
        <span class={`badge ${one.active ? "good" : "bad"}`}>{one.active ? t.works : t.broken}</span>{" "}
        {one.state !== "active" && <span lang="en"><Name text={one.state} /></span>}
      </p>
      <Bar value={used} tone="cache">{t.full(percent(used, 0))} · {bytes(one.bytes)}</Bar>
      <dl class="facts">
        <div><dt>{t.read}</dt><dd>{bytes(one.bytes_read)} <small>({number(one.reads)})</small></dd></div>
        <div><dt>{t.written}</dt><dd>{bytes(one.bytes_written)} <small>({number(one.writes)})</small></dd></div>
        <div><dt>{t.writeTime}</dt><dd>{one.write_us > 0 ? micros(one.write_us) : "–"}</dd></div>
        <div><dt>{t.errors}</dt><dd>{number(one.errors)}</dd></div>
        <div><dt>{t.givenUp}</dt><dd>{number(one.reads_given_up)}</dd></div>
        <div><dt>{t.direct}</dt><dd>{one.direct_io ? text.value.yes : text.value.no}</dd></div>
      </dl>
    </li>
  );
}
