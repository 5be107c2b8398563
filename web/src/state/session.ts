// The token, and whether the console answers.
//
// The token comes in the fragment of the address, which browsers send to nobody, and is kept for this tab alone.

import { signal } from "@preact/signals";
import { decoded } from "./decoded";

const KEPT = "bpe-console-token";

export const token = signal<string | null>(null);
/** The console refused the token that it was shown. */
export const refused = signal(false);
export const connection = signal<"open" | "lost">("open");

/** The token in a fragment such as `#token=abc` or `#token=abc&/servers/1`, and what is left of the fragment. */
export function tokenInFragment(fragment: string): { token: string | null; rest: string } {
  const parts = fragment.replace(/^#/, "").split("&");
  const found = parts.find((part) => part.startsWith("token="));
  const rest = parts.filter((part) => part !== found).join("&");
  return { token: found ? decoded(found.slice("token=".length)) || null : null, rest };
}

/** Takes the token from the address, where it does not stay, or what this tab has kept. */
export function findToken(): void {
  const found = tokenInFragment(location.hash);
  if (found.token !== null) {
    history.replaceState(null, "", `${location.pathname}${location.search}${found.rest ? `#${found.rest}` : ""}`);
    useToken(found.token);
  } else {
    token.value = sessionStorage.getItem(KEPT);
  }
}

export function useToken(text: string): void {
  sessionStorage.setItem(KEPT, text);
  refused.value = false;
  token.value = text;
}

/** The console did not take this token; a newer one is left alone. */
export function tokenRefused(sent: string | null): void {
  if (sent !== token.value) return;
  sessionStorage.removeItem(KEPT);
  refused.value = sent !== null;
  token.value = null;
}
