// Language and colours: what the browser says, or what was chosen here by hand.

import { computed, effect, signal } from "@preact/signals";
import { type Language, languageOf, LANGUAGES } from "../messages";

export type Theme = "system" | "light" | "dark";

function kept<T extends string>(key: string, allowed: readonly T[]): T | null {
  try {
    const value = localStorage.getItem(key);
    return allowed.find((one) => one === value) ?? null;
  } catch {
    return null; // storage may be forbidden
  }
}

function keep(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // then it lasts as long as the page
  }
}

/** null: as the browser says. */
export const chosenLanguage = signal<Language | null>(null);
export const language = computed<Language>(() => chosenLanguage.value ?? languageOf(navigator.languages));

export const theme = signal<Theme>("system");
const systemIsDark = signal(false);
export const dark = computed(() => (theme.value === "system" ? systemIsDark.value : theme.value === "dark"));

export function startPreferences(): void {
  chosenLanguage.value = kept("bpe-console-language", LANGUAGES);
  theme.value = kept("bpe-console-theme", ["light", "dark"] as const) ?? "system";
  const query = matchMedia("(prefers-color-scheme: dark)");
  systemIsDark.value = query.matches;
  query.addEventListener("change", () => (systemIsDark.value = query.matches));
  effect(() => {
    document.documentElement.dataset["theme"] = dark.value ? "dark" : "light";
  });
  effect(() => {
    document.documentElement.lang = language.value;
  });
  effect(() => keep("bpe-console-language", chosenLanguage.value));
  effect(() => keep("bpe-console-theme", theme.value === "system" ? null : theme.value));
}
