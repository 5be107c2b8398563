// The dialog behind the switch: what will change is shown before it is done, and the steps while it is.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, ApiError } from "../api/client";
import type { Action, Change, Plan, PlanPart, Server, SwitchRequest, Task } from "../api/types";
import { Dialog } from "../components/dialog";
import { Said } from "../components/said";
import { exactSize, parseSize } from "../format";
import type { ServerStore } from "../state/server";
import { text } from "../state/text";
import { TaskSteps } from "./task";

/** So long a plan that has just taken the place of another one cannot be confirmed. */
const UNREAD_MS = 700;

interface Asked {
  request: SwitchRequest;
  plan: Plan;
}

export function SwitchDialog(props: { store: ServerStore; server: Server; action: Action; onClose: () => void }) {
  const t = text.value.switch;
  const { store, server, action } = props;
  const settings = store.details.value?.settings;
  const path = useSignal(String(settings?.["bpe_path"] || server.cache_path || ""));
  const knownSize = Number(settings?.["bpe_size"]) || server.cache_bytes || (server.pool_bytes ?? 0) * 8;
  const size = useSignal(knownSize > 0 ? exactSize(knownSize) : "");
  const asked = useSignal<Asked | null>(null);
  const problem = useSignal<ApiError | null>(null);
  const task = useSignal<Task | null>(null);
  const sending = useSignal(false);
  /** Parts in which the plan differs from the one that was confirmed. */
  const differs = useSignal<PlanPart[] | null>(null);

  const parsed = parseSize(size.value);
  const uninstall = useSignal(false);
  const complete = action === "off" || (path.value.trim() !== "" && parsed !== null);
  const request: SwitchRequest = action === "off" ? { action, ...(uninstall.value ? { uninstall: true } : {}) } : { action, path: path.value.trim(), size: parsed ?? 0 };
  const key = JSON.stringify(request);

  // The plan follows what is typed, a moment later.
  useEffect(() => {
    asked.value = null;
    problem.value = null;
    differs.value = null;
    if (!complete) return;
    let newer = false;
    const timer = setTimeout(() => {
      api.plan(store.id, request).then(
        (plan) => !newer && (asked.value = { request, plan }),
        (error) => {
          if (!newer && error instanceof ApiError) problem.value = error;
        },
      );
    }, 250);
    return () => {
      newer = true;
      clearTimeout(timer);
    };
  }, [key, complete]);

  // Progress comes with the server's stream; asking besides makes up for a stream that is interrupted.
  const live = store.task.value;
  const shown = task.value && live?.id === task.value.id && task.value.state === "running" ? live : task.value;
  const running = shown?.state === "running";
  useEffect(() => {
    if (!task.value || !running) return;
    const id = task.value.id;
    const timer = setInterval(() => {
      api.task(id).then((answer) => {
        task.value = answer;
        store.task.value = answer;
      }, () => undefined);
    }, 1000);
    return () => clearInterval(timer);
  }, [task.value?.id, running]);

  async function confirm(): Promise<void> {
    if (!asked.value) return;
    const { request, plan } = asked.value;
    sending.value = true;
    problem.value = null;
    differs.value = null;
    try {
      const answer = await api.switch(store.id, { ...request, digest: plan.digest });
      task.value = answer;
      store.task.value = answer;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.changed && asked.value?.request === request) {
        asked.value = { request, plan: error.changed.plan };
        differs.value = error.changed.differs;
        // A second click that was under way confirms nothing that nobody has read.
        await new Promise((resolve) => setTimeout(resolve, UNREAD_MS));
      } else problem.value = error;
    } finally {
      sending.value = false;
    }
  }

  const close = () => {
    if (shown && shown.state !== "running" && store.task.value?.id === shown.id) store.task.value = null;
    props.onClose();
  };
  const plan = asked.value?.plan;
  return (
    <Dialog title={action === "on" ? t.titleOn : t.titleOff} onClose={close}>
      {shown ? <TaskSteps task={shown} /> : (
        <>
          {action === "on" && (
            <div class="fields">
              <label class="field">
                <span>{t.path}</span>
                <input type="text" name="path" spellcheck={false} autocomplete="off" value={path.value}
                  aria-describedby="path-hint" onInput={(event) => (path.value = event.currentTarget.value)} />
                <small id="path-hint">{t.pathHint}</small>
              </label>
              <label class="field">
                <span>{t.size}</span>
                <input type="text" name="size" spellcheck={false} autocomplete="off" value={size.value} inputMode="text"
                  aria-describedby="size-hint" aria-invalid={size.value !== "" && parsed === null}
                  onInput={(event) => (size.value = event.currentTarget.value)} />
                <small id="size-hint">{size.value !== "" && parsed === null ? t.badSize : t.sizeHint}</small>
              </label>
            </div>
          )}
          {action === "off" && (
            <label class="choice">
              <input type="checkbox" name="uninstall" checked={uninstall.value} onChange={(event) => (uninstall.value = event.currentTarget.checked)} />
              <span>{t.uninstall}</span>
            </label>
          )}
          <div aria-live="polite" class="plan">
            {plan ? <ThePlan plan={plan} /> : complete && !problem.value ? <p class="note">{text.value.loading}</p> : null}
          </div>
        </>
      )}
      <div role="alert">
        {differs.value && !shown && (
          <p class="banner warn" data-plan-changed>
            {t.changed} {t.differs(differs.value.map((part) => t.parts[part] ?? part).join(text.value.separator))}
          </p>
        )}
        {problem.value && <p class="banner bad"><span lang="en">{problem.value.message}</span> {problem.value.advice && <span lang="en" class="advice">{problem.value.advice}</span>}</p>}
      </div>
      <div class="buttons">
        {shown ? <button type="button" class="primary" onClick={close}>{text.value.close}</button> : (
          <>
            <button type="button" onClick={close}>{text.value.cancel}</button>
            <button type="button" class={action === "on" ? "primary" : "danger"} data-confirm
              disabled={!plan || plan.refused !== null || sending.value} onClick={() => void confirm()}>
              {action === "on" ? t.doOn : t.doOff}
            </button>
          </>
        )}
      </div>
    </Dialog>
  );
}

const show = (value: Change["from"]) => (value === null || value === "" ? "–" : String(value));

export function ThePlan(props: { plan: Plan }) {
  const t = text.value.switch;
  const plan = props.plan;
  return (
    <>
      {plan.refused !== null && <p class="banner bad">{t.refused} <Said text={plan.refused} /></p>}
      <h3>{t.changes}</h3>
      {plan.changes.length === 0 ? <p class="note">{t.nothing}</p> : (
        <ul class="changes">
          {plan.changes.map((change, i) => (
            <li key={i}>
              <b><Said text={change.what} /></b>
              {(change.from || change.to) && (
                <span class="from-to path"><Said text={show(change.from)} /> <span aria-hidden="true">→</span> <Said text={show(change.to)} /></span>
              )}
              {change.why && <small><Said text={change.why} /></small>}
            </li>
          ))}
        </ul>
      )}
      {plan.warnings.length > 0 && (
        <>
          <h3>{t.warnings}</h3>
          <ul class="warnings">{plan.warnings.map((warning, i) => <li key={i}><Said text={warning} /></li>)}</ul>
        </>
      )}
    </>
  );
}
