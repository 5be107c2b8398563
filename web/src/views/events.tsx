import { Said } from "../components/said";
import { dateAndClock } from "../format";
import type { ServerStore } from "../state/server";
import { text } from "../state/text";

const TONES = { info: "plain", warning: "warn", error: "bad" } as const;

/** What happened, newest first: to this server, and to the console itself. */
export function EventsView(props: { store: ServerStore }) {
  const t = text.value.events;
  const events = props.store.events.value.filter((one) => !one.server || one.server === props.store.id).slice().reverse();
  return (
    <section aria-labelledby="events-title">
      <h2 id="events-title">{t.title}</h2>
      {events.length === 0 ? <p class="note">{t.empty}</p> : (
        <ol class="card event-list" role="log" aria-label={t.title}>
          {events.map((one, i) => (
            <li key={`${one.at_ms}-${events.length - i}`}>
              <time dateTime={new Date(one.at_ms).toISOString()}>{dateAndClock(one.at_ms)}</time>
              <span class={`badge ${TONES[one.level] ?? "plain"}`}>{t.levels[one.level] ?? one.level}</span>
              <Said text={one.text} />
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}
