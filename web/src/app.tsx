// The frame of the page: header, messages about the connection, and the view that the address names.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, ApiError, tryCandidate } from "./api/client";
import type { About } from "./api/types";
import { useRepeated } from "./components/refresh";
import { addressOf, route } from "./state/route";
import { chosenLanguage, language, theme, type Theme } from "./state/preferences";
import { candidate, connection, findToken, linkRefused, token } from "./state/session";
import { current, lookAt } from "./state/server";
import { text } from "./state/text";
import { type Language, LANGUAGE_NAMES, languageOf, LANGUAGES } from "./messages";
import { ClusterPage } from "./views/cluster";
import { ExperiencePage } from "./views/experience";
import { ServerPage } from "./views/server";
import { ServersPage } from "./views/servers";
import { TokenForm } from "./views/token";

export function App() {
  const t = text.value;
  const about = useSignal<About | null>(null);
  const at = route.value;

  useEffect(() => {
    document.title = `innodb-bpe · ${t.product}`;
  }, [t]);

  // An address with a token may be opened in this tab later, too.
  useEffect(() => {
    const read = () => location.hash.includes("token=") && findToken();
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);

  useRepeated(() => void tryCandidate(), 5000, candidate.value);

  useRepeated(() => {
    if (token.value === null) return;
    api.about().then(
      (answer) => {
        about.value = answer;
        connection.value = "open";
      },
      (error) => {
        if (error instanceof ApiError && error.status === 0) connection.value = "lost";
      },
    );
  }, 5000, token.value);

  useEffect(() => {
    if (token.value === null) lookAt(null);
    else if (at.page === "server") lookAt(at.id);
    else if (at.page === "servers" || at.page === "cluster") lookAt(null);
  }, [at, token.value]);

  return (
    <>
      <a class="skip" href="#content" onClick={(event) => {
        event.preventDefault();
        document.getElementById("content")?.focus();
      }}>{t.skip}</a>
      <Header about={about.value} />
      <div role="alert" class="alerts">
        {token.value !== null && connection.value === "lost" && <p class="banner bad" data-banner="console">{t.lost.console}</p>}
        {linkRefused.value && (
          <p class="banner bad" data-banner="link">
            {t.token.linkRefused} <button type="button" class="small" onClick={() => (linkRefused.value = false)}>{t.token.dismiss}</button>
          </p>
        )}
      </div>
      <main id="content" tabIndex={-1}>
        {token.value === null ? <TokenForm />
          : at.page === "servers" ? <ServersPage />
          : at.page === "cluster" ? <ClusterPage key={at.name} name={at.name} />
          : at.page === "experience" ? <ExperiencePage />
          : current.value && <ServerPage key={at.id} store={current.value} view={at.view} />}
      </main>
    </>
  );
}

/** The browser's own language is followed, not kept. */
function choose(wanted: Language): void {
  chosenLanguage.value = wanted === languageOf(navigator.languages) ? null : wanted;
}

function Header(props: { about: About | null }) {
  const t = text.value;
  const at = route.value;
  return (
    <header class="top">
      <a class="brand" href={addressOf({ page: "servers" })}>
        <svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" /><rect x="7" y="7" width="18" height="4.5" rx="1.5" /><rect x="7" y="13.75" width="18" height="4.5" rx="1.5" /><rect x="7" y="20.5" width="18" height="4.5" rx="1.5" /></svg>
        <span>innodb-bpe</span>
      </a>
      <nav aria-label={t.header.navigation}>
        <a href={addressOf({ page: "servers" })} aria-current={at.page !== "experience" ? "page" : undefined}>{t.header.servers}</a>
        {props.about?.experience && <a href={addressOf({ page: "experience" })} aria-current={at.page === "experience" ? "page" : undefined}>{t.header.experience}</a>}
      </nav>
      <div class="preferences">
        {props.about && <span class="version">{t.header.version(props.about.version)}</span>}
        <select class="small" aria-label={t.header.theme} value={theme.value} data-preference="theme"
          onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
          {(["system", "light", "dark"] as const).map((one) => <option key={one} value={one}>{t.header.themes[one]}</option>)}
        </select>
        <select class="small" aria-label={t.header.language} value={language.value} data-preference="language"
          onChange={(event) => choose(event.currentTarget.value as Language)}>
          {LANGUAGES.map((one) => <option key={one} value={one} lang={one}>{LANGUAGE_NAMES[one]}</option>)}
        </select>
      </div>
    </header>
  );
}
