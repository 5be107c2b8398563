// Servers that belong together: role, lag, state, hit ratio and warmth of each, the switch for all of them, and what happened.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, ApiError } from "../api/client";
import type { Action, Cluster, ClusterPlan, ClusterRequest, ConsoleEvent, Member, Way } from "../api/types";
import { StateBadge } from "../components/badge";
import { Dialog } from "../components/dialog";
import { Name } from "../components/name";
import { useRepeated } from "../components/refresh";
import { Said } from "../components/said";
import { dateAndClock, number, parseSize, percent, visible } from "../format";
import { addressOf } from "../state/route";
import { text } from "../state/text";
import { ThePlan } from "./switch";
import { TaskSteps } from "./task";

const TONES = { info: "plain", warning: "warn", error: "bad" } as const;

export function ClusterPage(props: { name: string }) {
  const t = text.value.clusters;
  const clusters = useSignal<Cluster[] | null>(null);
  const events = useSignal<ConsoleEvent[]>([]);
  const problem = useSignal<ApiError | null>(null);
  const asked = useSignal<Action | null>(null);
  const look = () => {
    Promise.all([api.clusters(), api.events()]).then(
      ([answer, happened]) => {
        clusters.value = answer;
        events.value = happened;
        problem.value = null;
      },
      (error) => {
        if (error instanceof ApiError && error.status !== 0) problem.value = error;
      },
    );
  };
  useRepeated(look, 1500, props.name);
  const cluster = clusters.value?.find((one) => one.name === props.name);
  const running = cluster?.task?.state === "running";
  return (
    <section aria-labelledby="cluster-title" class="view cluster-view">
      <div class="server-title">
        <div>
          <p class="crumb"><a href={addressOf({ page: "servers" })}>{text.value.servers.title}</a></p>
          <h1 id="cluster-title"><Name text={t.title(props.name)} /></h1>
        </div>
        {cluster && (
          <div class="buttons">
            <button type="button" class="primary" data-cluster="on" disabled={running} onClick={() => (asked.value = "on")}>{t.allOn}</button>
            <button type="button" data-cluster="off" disabled={running} onClick={() => (asked.value = "off")}>{t.allOff}</button>
          </div>
        )}
      </div>
      {problem.value && <p class="banner bad" role="alert">{problem.value.message} {problem.value.advice}</p>}
      {clusters.value === null ? <p class="note">{text.value.loading}</p>
        : !cluster ? <p class="note">{t.gone}</p>
        : (
          <>
            {cluster.problem && <p class="banner warn"><Said text={cluster.problem} /> <Said class="advice" text={cluster.advice} /></p>}
            <p class="note">{cluster.configured ? t.configured : t.discovered}</p>
            <Members cluster={cluster} />
            {cluster.task && (
              <div class="card task-card">
                <TaskSteps task={cluster.task} heading="h2" />
                {running && <button type="button" data-stop onClick={() => void api.stopCluster(cluster.name)}>{t.stop}</button>}
              </div>
            )}
            <p class="note">{t.worse}</p>
            <Events cluster={cluster} events={events.value} />
            {asked.value && <ClusterDialog cluster={cluster} action={asked.value} onBegun={look} onClose={() => (asked.value = null)} />}
          </>
        )}
    </section>
  );
}

function Members(props: { cluster: Cluster }) {
  const t = text.value.clusters;
  return (
    <div class="scroll card" tabIndex={0} role="region" aria-label={t.members}>
      <table class="members">
        <caption class="unseen">{t.members}</caption>
        <thead>
          <tr>
            <th scope="col">{t.server}</th><th scope="col">{t.role}</th><th scope="col">{t.state}</th>
            <th scope="col" class="number">{t.lag}</th><th scope="col">{text.value.servers.state}</th>
            <th scope="col" class="number">{t.hits}</th><th scope="col" class="number">{t.warmth}</th><th scope="col">{t.ready}</th>
          </tr>
        </thead>
        <tbody>{props.cluster.members.map((member) => <Row key={member.id} member={member} />)}</tbody>
      </table>
    </div>
  );
}

function Row(props: { member: Member }) {
  const t = text.value.clusters;
  const member = props.member;
  return (
    <tr data-member={member.name}>
      <th scope="row"><a href={addressOf({ page: "server", id: member.id, view: "overview" })}><Name text={member.name} /></a></th>
      <td data-role={member.role}>{t.roles[member.role] ?? member.role}</td>
      <td>
        {member.error ? <span class="problem" lang="en"><Name text={member.error} /></span> : <span lang="en">{member.state || "–"}</span>}
        {member.errors && <small class="problem" lang="en"><Name text={member.errors} /></small>}
        {member.unseen.map((one) => <small key={one} class="problem" lang="en"><Name text={one} /></small>)}
      </td>
      <td class="number">{member.lag_s === null ? t.unknown : t.seconds(number(member.lag_s))}</td>
      <td><StateBadge state={member.reachable ? member.extension ?? "not installed" : "unreachable"} /></td>
      <td class="number">{percent(member.hit_ratio_percent)}</td>
      <td class="number" data-warm>{member.role.endsWith("primary") ? t.reference : member.warm_percent === null ? t.noList : percent(member.warm_percent, 0)}</td>
      <td><span class={`badge ${member.ready ? "good" : "warn"}`}>{member.ready ? t.isReady : t.isNotReady}</span> <small lang="en"><Name text={member.ready_reason} /></small></td>
    </tr>
  );
}

/** Of all members, newest first. */
function Events(props: { cluster: Cluster; events: ConsoleEvent[] }) {
  const t = text.value.events;
  const names = new Map(props.cluster.members.map((member) => [member.id, member.name]));
  const events = props.events.filter((one) => one.server && names.has(one.server)).reverse();
  return (
    <section aria-labelledby="cluster-events">
      <h2 id="cluster-events">{text.value.clusters.events}</h2>
      {events.length === 0 ? <p class="note">{t.empty}</p> : (
        <div role="log" aria-label={text.value.clusters.events}><ol class="card event-list">
          {events.map((one, i) => (
            <li key={`${one.at_ms}-${events.length - i}`}>
              <time dateTime={new Date(one.at_ms).toISOString()}>{dateAndClock(one.at_ms)}</time>
              <span class={`badge ${TONES[one.level] ?? "plain"}`}>{t.levels[one.level] ?? one.level}</span>
              <span><b>{names.get(one.server!)}</b> <Said text={one.text} /></span>
            </li>
          ))}
        </ol></div>
      )}
    </section>
  );
}

/** What will be done to each, before it is done. */
function ClusterDialog(props: { cluster: Cluster; action: Action; onBegun: () => void; onClose: () => void }) {
  const t = text.value.clusters;
  const s = text.value.switch;
  const { cluster, action } = props;
  const path = useSignal("");
  const size = useSignal("");
  const way = useSignal<Way>("rolling");
  const plan = useSignal<{ request: ClusterRequest; plan: ClusterPlan } | null>(null);
  const problem = useSignal<ApiError | null>(null);
  const sending = useSignal(false);
  const parsed = parseSize(size.value);
  const wrong = size.value !== "" && parsed === null;
  const request: ClusterRequest = action === "off" ? { action }
    : { action, ...(path.value.trim() ? { path: path.value.trim() } : {}), ...(parsed !== null ? { size: parsed } : {}) };
  const key = JSON.stringify(request);

  useEffect(() => {
    plan.value = null;
    problem.value = null;
    if (wrong) return;
    let newer = false;
    const timer = setTimeout(() => {
      api.planCluster(cluster.name, request).then(
        (answer) => !newer && (plan.value = { request, plan: answer }),
        (error) => {
          if (!newer && error instanceof ApiError) problem.value = error;
        },
      );
    }, 250);
    return () => {
      newer = true;
      clearTimeout(timer);
    };
  }, [key, wrong]);

  async function confirm(): Promise<void> {
    if (!plan.value) return;
    sending.value = true;
    problem.value = null;
    try {
      const digests = Object.fromEntries(plan.value.plan.nodes.map((node) => [node.id, node.plan.digest]));
      await api.switchCluster(cluster.name, { ...plan.value.request, way: way.value, digests });
      props.onBegun();
      props.onClose();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.value = error;
    } finally {
      sending.value = false;
    }
  }

  const shown = plan.value?.plan;
  const refused = shown?.refused ?? null;
  const possible = shown !== undefined && refused === null && shown.nodes.every((node) => node.plan.refused === null);
  return (
    <Dialog title={action === "on" ? t.titleOn(visible(cluster.name)) : t.titleOff(visible(cluster.name))} onClose={props.onClose}>
      {action === "on" && (
        <div class="fields">
          <label class="field">
            <span>{s.path}</span>
            <input type="text" name="path" spellcheck={false} autocomplete="off" value={path.value} aria-describedby="cluster-path"
              onInput={(event) => (path.value = event.currentTarget.value)} />
            <small id="cluster-path">{t.ownPath}</small>
          </label>
          <label class="field">
            <span>{s.size}</span>
            <input type="text" name="size" spellcheck={false} autocomplete="off" value={size.value} aria-describedby="cluster-size" aria-invalid={wrong}
              onInput={(event) => (size.value = event.currentTarget.value)} />
            <small id="cluster-size">{wrong ? s.badSize : s.sizeHint}</small>
          </label>
        </div>
      )}
      <fieldset class="ways">
        <legend>{t.how}</legend>
        {(["rolling", "all"] as const).map((one) => (
          <label key={one} class="choice">
            <input type="radio" name="way" value={one} checked={way.value === one} onChange={() => (way.value = one)} />
            <span>{t.ways[one]}</span>
          </label>
        ))}
      </fieldset>
      {way.value === "rolling" && <p class="note">{t.worse}</p>}
      <div aria-live="polite" class="plan">
        {refused !== null && <p class="banner bad">{s.refused} <Said text={refused} /></p>}
        {shown ? shown.nodes.map((node) => (
          <section key={node.id} data-plan={node.name} aria-label={visible(node.name)}>
            <h3><Name text={node.name} /></h3>
            <ThePlan plan={node.plan} />
          </section>
        )) : !wrong && !problem.value && <p class="note">{text.value.loading}</p>}
      </div>
      <div role="alert">
        {problem.value && <p class="banner bad"><span lang="en">{problem.value.message}</span> {problem.value.advice && <span lang="en" class="advice">{problem.value.advice}</span>}</p>}
      </div>
      <div class="buttons">
        <button type="button" onClick={props.onClose}>{text.value.cancel}</button>
        <button type="button" class={action === "on" ? "primary" : "danger"} data-confirm disabled={!possible || sending.value} onClick={() => void confirm()}>
          {action === "on" ? t.doOn : t.doOff}
        </button>
      </div>
    </Dialog>
  );
}
