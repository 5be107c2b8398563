// The token, and whether the console answers.
//
// The token comes in the fragment of the address, which browsers send to no host, and is kept for this tab alone. A link
// that is opened later replaces it only after the console has admitted the new token: anybody can send such a link.

import { signal } from "@preact/signals";
import { decoded } from "./decoded";

const KEPT = "bpe-console-token";

export const token = signal<string | null>(null);
/** The token of a link, which the console has not admitted yet. The page goes on with the other one meanwhile. */
export const candidate = signal<string | null>(null);
/** The console refused the token that it was shown. */
export const refused = signal(false);
/** The console refused the token of a link, and the page goes on with the one it has. */
export const linkRefused = signal(false);
export const connection = signal<"open" | "lost">("open");

/** The token in a fragment such as `#token=abc` or `#token=abc&/servers/1`, and what is left of the fragment. */
export function tokenInFragment(fragment: string): { token: string | null; rest: string } {
  const parts = fragment.replace(/^#/, "").split("&");
  const found = parts.find((part) => part.startsWith("token="));
  const rest = parts.filter((part) => part !== found).join("&");
  return { token: found ? decoded(found.slice("token=".length)) || null : null, rest };
}

/** Takes the token that this tab has kept, and the one in the address, where it does not stay. */
export function findToken(): void {
  token.value ??= sessionStorage.getItem(KEPT);
  const found = tokenInFragment(location.hash);
  if (found.token === null) return;
  history.replaceState(null, "", `${location.pathname}${location.search}${found.rest ? `#${found.rest}` : ""}`);
  linkRefused.value = false;
  if (token.value === null) useToken(found.token);
  else candidate.value = found.token === token.value ? null : found.token;
}

export function useToken(text: string): void {
  sessionStorage.setItem(KEPT, text);
  refused.value = false;
  candidate.value = null;
  token.value = text;
}

/** The console took the token of a link. A newer link is left alone. */
export function tokenAdmitted(sent: string): void {
  if (sent === candidate.value) useToken(sent);
}

/** The console did not take this token; a newer one is left alone. */
export function tokenRefused(sent: string | null): void {
  if (sent !== null && sent === candidate.value) {
    candidate.value = null;
    refused.value = token.value === null;
    linkRefused.value = token.value !== null;
    return;
  }
  if (sent !== token.value) return;
  sessionStorage.removeItem(KEPT);
  refused.value = sent !== null;
  linkRefused.value = false;
  token.value = null;
}
