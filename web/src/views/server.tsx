// One server: its head with the switch, the tabs, and the view that is chosen.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { api, ApiError } from "../api/client";
import type { Action, Server } from "../api/types";
import { StateBadge } from "../components/badge";
import { Name } from "../components/name";
import { useRepeated } from "../components/refresh";
import { clock } from "../format";
import { addressOf, type View, VIEWS } from "../state/route";
import type { ServerStore } from "../state/server";
import { text } from "../state/text";
import { ChartsView } from "./charts";
import { CompareView } from "./compare";
import { DisksView } from "./disks";
import { EventsView } from "./events";
import { InstancesView } from "./instances";
import { Overview } from "./overview";
import { SettingsView } from "./settings";
import { SwitchDialog } from "./switch";
import { TablesView } from "./tables";
import { TaskSteps } from "./task";

export function ServerPage(props: { store: ServerStore; view: View }) {
  const t = text.value;
  const store = props.store;
  const server = useSignal<Server | null>(null);
  const problem = useSignal<string | null>(null);
  const asked = useSignal<Action | null>(null);
  useRepeated(() => {
    api.servers().then(
      (all) => {
        server.value = all.find((one) => one.id === store.id) ?? server.value;
        problem.value = server.value ? null : t.servers.empty;
      },
      (error) => {
        if (error instanceof ApiError && error.status !== 0) problem.value = error.message;
      },
    );
  }, 3000, store.id);

  // Where the tabs do not fit, the chosen one is brought into sight.
  const tabs = useRef<HTMLElement>(null);
  useEffect(() => {
    const chosen = tabs.current?.querySelector<HTMLElement>("[aria-current]");
    if (tabs.current && chosen) tabs.current.scrollLeft = chosen.offsetLeft - (tabs.current.clientWidth - chosen.offsetWidth) / 2;
  }, [props.view]);

  const gone = store.unreachable.value;
  const newest = store.figures.value[store.figures.value.length - 1];
  const state = newest?.state ?? server.value?.state ?? null;
  const reason = newest?.state_reason || server.value?.state_reason || "";
  const task = store.task.value;
  const busy = task?.state === "running" || store.comparing.value?.running === true;
  const on = state === "active" || state === "bypass" || state === "passive" || state === "failed";

  return (
    <>
      <div class="server-title">
        <div>
          <p class="crumb"><a href={addressOf({ page: "servers" })}>{t.servers.title}</a></p>
          <h1><Name text={server.value?.name ?? store.id} /> {state && <StateBadge state={gone ? "unreachable" : state} />}</h1>
        </div>
        {state && (
          <div class="switch-box">
            <span id="switch-label" class="unseen">{t.switch.label}</span>
            <button type="button" role="switch" aria-checked={on} aria-labelledby="switch-label" class="toggle"
              disabled={busy || gone !== null} onClick={() => (asked.value = on ? "off" : "on")}>
              <span class="knob" aria-hidden="true" />
              <span class="toggle-text">{busy ? t.switch.busy : on ? t.switch.turnOff : t.switch.turnOn}</span>
            </button>
          </div>
        )}
      </div>
      <div role="alert">
        {gone && (
          <p class="banner bad" data-banner="server">
            {t.lost.server(clock(gone.since_ms))} <span lang="en">{gone.error}</span>
          </p>
        )}
        {problem.value && <p class="banner bad">{problem.value}</p>}
        {!gone && (state === "failed" || state === "passive" || state === "bypass") && !store.comparing.value?.running && reason && (
          <p class="banner warn" lang="en">{reason}</p>
        )}
        {!gone && state === "active" && reason && <p class="banner warn" lang="en">{reason}</p>}
      </div>
      {task && asked.value === null && (
        <section class="card task-card" aria-label={t.switch.progress}>
          <TaskSteps task={task} heading="h2" />
          {task.state !== "running" && <button type="button" onClick={() => (store.task.value = null)}>{t.switch.dismiss}</button>}
        </section>
      )}
      <nav class="tabs" aria-label={t.views.label} ref={tabs}>
        {VIEWS.map((view) => (
          <a key={view} href={addressOf({ page: "server", id: store.id, view })} aria-current={view === props.view ? "page" : undefined}>
            {t.views[view]}
          </a>
        ))}
      </nav>
      <div class={gone ? "view stale" : "view"}>
        <TheView view={props.view} store={store} server={server.value} />
      </div>
      {asked.value && server.value && (
        <SwitchDialog store={store} server={server.value} action={asked.value} onClose={() => (asked.value = null)} />
      )}
    </>
  );
}

function TheView(props: { view: View; store: ServerStore; server: Server | null }) {
  switch (props.view) {
    case "overview":
      return <Overview store={props.store} server={props.server} />;
    case "charts":
      return <ChartsView store={props.store} />;
    case "instances":
      return <InstancesView store={props.store} />;
    case "tables":
      return <TablesView store={props.store} />;
    case "disks":
      return <DisksView store={props.store} />;
    case "compare":
      return <CompareView store={props.store} />;
    case "settings":
      return <SettingsView store={props.store} />;
    case "events":
      return <EventsView store={props.store} />;
  }
}
