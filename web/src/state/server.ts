// What is known of the server that is looked at: its figures of the last minutes, details, tasks, and whether it answers.

import { signal, type Signal } from "@preact/signals";
import { api, ApiError } from "../api/client";
import { follow } from "../api/live";
import type { Comparing, ConsoleEvent, Details, Figures, LiveLine, RunPoint, Task } from "../api/types";

/** A quarter of an hour at one a second. */
const KEPT_FIGURES = 900;
const DETAILS_EVERY_MS = 3000;

export class ServerStore {
  readonly figures: Signal<Figures[]> = signal([]);
  readonly details: Signal<Details | null> = signal(null);
  readonly unreachable: Signal<{ error: string; since_ms: number } | null> = signal(null);
  /** The newest task of this server, until it is put aside. */
  readonly task: Signal<Task | null> = signal(null);
  readonly events: Signal<ConsoleEvent[]> = signal([]);
  readonly runPoint: Signal<RunPoint | null> = signal(null);
  /** The comparison under way, or the last one. */
  readonly comparing: Signal<Comparing | null> = signal(null);
  private end: (() => void) | null = null;
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(readonly id: string) {}

  start(): void {
    this.end = follow(this.id, { begun: () => void this.begun(), line: (line) => this.take(line) });
    this.timer = setInterval(() => void this.readDetails(), DETAILS_EVERY_MS);
  }

  stop(): void {
    this.end?.();
    clearInterval(this.timer);
  }

  get latest(): Figures | null {
    if (this.unreachable.value) return null;
    return this.figures.value[this.figures.value.length - 1] ?? null;
  }

  async readDetails(): Promise<void> {
    if (document.hidden || this.unreachable.value) return;
    try {
      this.details.value = await api.details(this.id);
    } catch (error) {
      // The stream tells what is wrong; the details shown stay until there are newer ones.
      if (!(error instanceof ApiError)) throw error;
    }
  }

  private async begun(): Promise<void> {
    try {
      const before = new Set(this.events.value);
      const [history, events] = await Promise.all([api.history(this.id), api.events()]);
      this.figures.value = mergeFigures(history.figures, this.figures.value);
      // What came with the stream while this was under way may be newer.
      this.events.value = mergeEvents(events, this.events.value.filter((one) => !before.has(one)));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
    await this.readDetails();
  }

  private take(line: LiveLine): void {
    switch (line.type) {
      case "figures":
        this.unreachable.value = null;
        this.figures.value = mergeFigures(this.figures.value, [line]);
        break;
      case "unreachable":
        this.unreachable.value = line;
        break;
      case "event":
        this.events.value = mergeEvents(this.events.value, [line]);
        break;
      case "task":
        this.task.value = line;
        if (line.state !== "running") void this.readDetails();
        break;
      case "run":
        this.runPoint.value = line;
        break;
      case "comparing":
        this.comparing.value = line;
        break;
    }
  }
}

/** Events, each once, the newest thousand. */
export function mergeEvents(older: ConsoleEvent[], newer: ConsoleEvent[]): ConsoleEvent[] {
  const key = (event: ConsoleEvent) => `${event.at_ms} ${event.server} ${event.text}`;
  const known = new Set(older.map(key));
  return [...older, ...newer.filter((event) => !known.has(key(event)))].slice(-1000);
}

/** Figures in the order of time, each once, the newest fifteen minutes. */
export function mergeFigures(older: Figures[], newer: Figures[]): Figures[] {
  const last = older[older.length - 1]?.at_ms ?? -Infinity;
  const first = newer[0]?.at_ms ?? Infinity;
  let all: Figures[];
  if (first > last) {
    all = [...older, ...newer];
  } else {
    const byTime = new Map([...older, ...newer].map((figures) => [figures.at_ms, figures]));
    all = [...byTime.values()].sort((a, b) => a.at_ms - b.at_ms);
  }
  return all.slice(-KEPT_FIGURES);
}

export const current = signal<ServerStore | null>(null);

/** Looks at this server, or at none; another one is let go. */
export function lookAt(id: string | null): void {
  if (current.value?.id === id) return;
  current.value?.stop();
  current.value = id === null ? null : new ServerStore(id);
  current.value?.start();
}
