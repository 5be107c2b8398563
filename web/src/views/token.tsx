import { useSignal } from "@preact/signals";
import { refused, useToken } from "../state/session";
import { text } from "../state/text";

/** Asks for the token. */
export function TokenForm() {
  const t = text.value.token;
  const typed = useSignal("");
  return (
    <form class="card token" onSubmit={(event) => {
      event.preventDefault();
      if (typed.value.trim()) useToken(typed.value.trim());
    }}>
      <h1>{t.title}</h1>
      <p>{t.explanation}</p>
      <div role="alert">{refused.value && <p class="banner bad">{t.wrong}</p>}</div>
      <label class="field">
        <span>{t.label}</span>
        <input type="password" name="token" autocomplete="off" autofocus spellcheck={false} required value={typed.value}
          onInput={(event) => (typed.value = event.currentTarget.value)} />
      </label>
      <button type="submit" class="primary">{t.open}</button>
    </form>
  );
}
