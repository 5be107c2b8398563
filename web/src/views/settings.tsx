import { useSignal } from "@preact/signals";
import { api, ApiError } from "../api/client";
import type { Settings } from "../api/types";
import { VARIABLES, type Variable } from "../api/variables";
import { Dialog } from "../components/dialog";
import { bytes, exactSize, parseSize } from "../format";
import type { ServerStore } from "../state/server";
import { language } from "../state/preferences";
import { text } from "../state/text";

/** A value as it is edited. */
const edited = (field: Variable, value: Settings[string] | undefined) =>
  value === null || value === undefined ? "" : field.kind === "size" ? exactSize(Number(value)) : String(value).toLowerCase();

export function SettingsView(props: { store: ServerStore }) {
  const t = text.value.settings;
  const { store } = props;
  const typed = useSignal<Partial<Record<string, string>>>({});
  const outcome = useSignal<{ tone: string; text: string; more: string[]; english?: boolean } | null>(null);
  const sending = useSignal(false);
  const asking = useSignal(false);
  const settings = store.details.value?.settings ?? {};
  const on = ["active", "bypass"].includes(store.latest?.state ?? "");
  const fields = VARIABLES.filter((field) => field.name in settings);
  const current = (field: Variable) => field.kind === "text" ? String(settings[field.name] ?? "") : edited(field, settings[field.name]);
  const changed = fields.filter((field) => typed.value[field.name] !== undefined && typed.value[field.name] !== current(field));
  const bad = changed.some((field) => !isGood(field, typed.value[field.name]!));

  async function save(): Promise<void> {
    outcome.value = null;
    if (changed.length === 0) {
      outcome.value = { tone: "plain", text: t.unchanged, more: [] };
      return;
    }
    if (on && !asking.value && changed.some((field) => field.rebuilds)) {
      asking.value = true;
      return;
    }
    asking.value = false;
    const wanted: Settings = {};
    const sent = typed.value;
    for (const field of changed) {
      const value = typed.value[field.name]!;
      wanted[field.name] = field.kind === "size" ? parseSize(value) : field.kind === "count" ? Number(value) : value.trim();
    }
    sending.value = true;
    try {
      const answer = await api.settings(store.id, wanted);
      // What was typed meanwhile stays.
      typed.value = Object.fromEntries(Object.entries(typed.value).filter(([name, value]) => value !== sent[name]));
      outcome.value = { tone: "good", text: t.saved, more: answer.warnings };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      outcome.value = { tone: "bad", text: error.message, more: error.advice ? [error.advice] : [], english: true };
    } finally {
      sending.value = false;
      await store.readDetails();
    }
  }

  return (
    <section aria-labelledby="settings-title">
      <h2 id="settings-title">{t.title}</h2>
      <p class="note">{fields.length === 0 ? t.notInstalled : t.explanation}</p>
      {fields.length > 0 && (
        <form class="card settings" onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}>
          <div class="fields">
            {fields.map((field) => {
              const value = typed.value[field.name] ?? current(field);
              const set = (text: string) => (typed.value = { ...typed.value, [field.name]: text });
              const hint = `hint-${field.name}`;
              const size = field.kind === "size" ? parseSize(value) : null;
              return (
                <label class="field" key={field.name}>
                  <span><code>{field.name}</code></span>
                  {field.kind === "choice" ? (
                    <select name={field.name} value={value} aria-describedby={hint} onChange={(event) => set(event.currentTarget.value)}>
                      {field.choices.map((one) => <option key={one} value={one}>{one}</option>)}
                    </select>
                  ) : (
                    <input name={field.name} type="text" inputMode={field.kind === "count" ? "numeric" : "text"} spellcheck={false} autocomplete="off"
                      value={value} aria-describedby={hint}
                      aria-invalid={!isGood(field, value)} onInput={(event) => set(event.currentTarget.value)} />
                  )}
                  <small id={hint}>
                    {size ? `${bytes(size)}. ` : ""}{field.hint[language.value]}{field.rebuilds && on ? ` ${t.rebuild}` : ""}
                  </small>
                </label>
              );
            })}
          </div>
          <div role="status">
            {outcome.value && (
              <p class={`banner ${outcome.value.tone}`} lang={outcome.value.english ? "en" : undefined}>
                {outcome.value.text} {outcome.value.more.map((one, i) => <span key={i} lang="en">{one} </span>)}
              </p>
            )}
          </div>
          <div class="buttons"><button type="submit" class="primary" disabled={sending.value || bad || store.unreachable.value !== null}>{t.save}</button></div>
        </form>
      )}
      {asking.value && (
        <Dialog title={t.title} onClose={() => (asking.value = false)}>
          <p>{t.confirm}</p>
          <div class="buttons">
            <button type="button" onClick={() => (asking.value = false)}>{text.value.cancel}</button>
            <button type="button" class="danger" onClick={() => void save()}>{t.save}</button>
          </div>
        </Dialog>
      )}
    </section>
  );
}

function isGood(field: Variable, value: string): boolean {
  if (field.kind === "size") return value === "" ? false : parseSize(value) !== null;
  if (field.kind === "count") return /^\d+$/.test(value.trim());
  return true;
}
