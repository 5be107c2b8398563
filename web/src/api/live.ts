// A server's stream of lines, which is begun anew whenever it ends, is silent for too long, or cannot be had.
//
// A browser opens six connections to one place at most, over all its windows. So the stream is given up while its page is
// hidden, and what was missed is fetched from the history afterwards.

import { ApiError, request } from "./client";
import { connection, token } from "../state/session";
import type { LiveLine } from "./types";

/** Each server says something every second; longer silence means that somebody between is gone. */
const SILENCE_MS = 6000;
const LONGEST_WAIT_MS = 5000;

/** Cuts what arrives into lines; the last, unfinished one is kept until its end arrives. */
export class LineCutter {
  private rest = "";

  push(text: string): string[] {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() ?? "";
    return lines.map((line) => line.trim()).filter((line) => line !== "");
  }
}

export interface Listener {
  /** A stream has begun: what came before has to be fetched. */
  begun(): void;
  line(line: LiveLine): void;
}

/** Follows a server until the function returned is called. */
export function follow(id: string, listener: Listener): () => void {
  let over = false;
  let attempt: AbortController | null = null;
  let wake: (() => void) | null = null;
  let silence: ReturnType<typeof setTimeout> | undefined;

  const hear = () => {
    clearTimeout(silence);
    silence = setTimeout(() => attempt?.abort(), SILENCE_MS);
  };

  async function read(): Promise<void> {
    attempt = new AbortController();
    hear();
    const response = await request(`/api/servers/${encodeURIComponent(id)}/live`, { signal: attempt.signal });
    const reader = response.body?.getReader();
    if (!reader) throw new ApiError(0, "no stream");
    connection.value = "open";
    listener.begun();
    const cutter = new LineCutter();
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      hear();
      connection.value = "open";
      for (const line of cutter.push(decoder.decode(value, { stream: true }))) {
        listener.line(JSON.parse(line) as LiveLine);
      }
    }
  }

  async function loop(): Promise<void> {
    let wait = 250;
    while (!over) {
      if (document.hidden) {
        await new Promise<void>((resolve) => (wake = resolve));
        continue;
      }
      const began = Date.now();
      try {
        await read();
      } catch (error) {
        if (error instanceof ApiError && error.status === 401 && token.value === null) return; // the token's form takes over
      }
      clearTimeout(silence);
      if (over || document.hidden) continue;
      connection.value = "lost";
      wait = Date.now() - began > 10_000 ? 250 : Math.min(wait * 2, LONGEST_WAIT_MS);
      await new Promise<void>((resolve) => {
        wake = resolve;
        setTimeout(resolve, wait);
      });
    }
  }

  const visibility = () => {
    if (document.hidden) attempt?.abort();
    else wake?.();
  };
  document.addEventListener("visibilitychange", visibility);
  void loop();

  return () => {
    over = true;
    clearTimeout(silence);
    document.removeEventListener("visibilitychange", visibility);
    attempt?.abort();
    wake?.();
  };
}
