// Calls of the console's server. Every one carries the token; what goes wrong becomes an ApiError with the server's words.

import { visible } from "../format";
import { candidate, token, tokenAdmitted, tokenRefused } from "../state/session";
import type {
  About, Action, Cluster, ClusterPlan, ClusterRequest, CompareRequest, Comparing, ConsoleEvent, Details, Experience, Figures, Plan, PlanChanged, Run, RunRequest, Server, Settings, SwitchRequest, TableRule, Task, Way,
} from "./types";

export class ApiError extends Error {
  constructor(
    /** 0: the console did not answer. */
    readonly status: number,
    message: string,
    readonly advice: string | null = null,
    /** The plan as it is now, where another one was confirmed. */
    readonly changed: PlanChanged | null = null,
  ) {
    super(message);
  }
}

/** The console did not answer at all. */
export function isUnanswered(error: unknown): boolean {
  return error instanceof ApiError && error.status === 0;
}

async function failure(response: Response): Promise<ApiError> {
  try {
    const body = (await response.json()) as { error?: string; advice?: string | null } & Partial<PlanChanged>;
    const changed = response.status === 409 && body.plan ? { plan: body.plan, differs: body.differs ?? [] } : null;
    return new ApiError(response.status, visible(body.error ?? response.statusText), body.advice ? visible(body.advice) : null, changed);
  } catch {
    return new ApiError(response.status, `${response.status} ${response.statusText}`);
  }
}

/** A request with the token. Throws ApiError for every answer but a good one. */
export async function request(path: string, init: RequestInit = {}, sent = token.value): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set("Authorization", `Bearer ${sent ?? ""}`);
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, "The console does not answer.");
  }
  if (response.status === 401) tokenRefused(sent);
  if (!response.ok) throw await failure(response);
  return response;
}

/** Shows the console the token of a link. Without an answer it stays a candidate. */
export async function tryCandidate(): Promise<void> {
  const sent = candidate.value;
  if (sent === null) return;
  try {
    await request("/api/about", {}, sent);
    tokenAdmitted(sent);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

async function get<T>(path: string): Promise<T> {
  return (await (await request(path)).json()) as T;
}

async function post<T>(path: string, body: unknown): Promise<T> {
  const response = await request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  return (text ? JSON.parse(text) : null) as T;
}

const of = (name: string) => `/api/clusters/${encodeURIComponent(name)}`;
const at = (id: string) => `/api/servers/${encodeURIComponent(id)}`;

export const api = {
  about: () => get<About>("/api/about"),
  servers: () => get<Server[]>("/api/servers"),
  history: (id: string) => get<{ figures: Figures[] }>(`${at(id)}/history`),
  details: (id: string) => get<Details>(`${at(id)}/details`),
  plan: (id: string, wanted: SwitchRequest) => post<Plan>(`${at(id)}/plan`, wanted),
  switch: (id: string, wanted: (SwitchRequest | { action: Action }) & { digest?: string | null }) => post<Task>(`${at(id)}/switch`, wanted),
  task: (id: string) => get<Task>(`/api/tasks/${encodeURIComponent(id)}`),
  settings: (id: string, changed: Settings) =>
    post<{ applied: Settings; warnings: string[] }>(`${at(id)}/settings`, changed),
  table: (id: string, wanted: TableRule) =>
    post<{ applied: Settings; warnings: string[] }>(`${at(id)}/tables`, wanted),
  compare: (id: string, wanted: CompareRequest) => post<Comparing>(`${at(id)}/compare`, wanted),
  stopComparing: (id: string) => post<unknown>(`${at(id)}/compare/stop`, {}),
  clusters: () => get<Cluster[]>("/api/clusters"),
  planCluster: (name: string, wanted: ClusterRequest) => post<ClusterPlan>(`${of(name)}/plan`, wanted),
  switchCluster: (name: string, wanted: ClusterRequest & { way: Way; digests: Record<string, string | null> }) => post<Task>(`${of(name)}/switch`, wanted),
  stopCluster: (name: string) => post<unknown>(`${of(name)}/stop`, {}),
  events: () => get<ConsoleEvent[]>("/api/events"),
  experience: () => get<Experience>("/api/experience"),
  run: (wanted: RunRequest) => post<Run>("/api/experience/run", wanted),
  stop: () => post<unknown>("/api/experience/stop", {}),
  /** The result as a file: JSON, or a page of its own. */
  result: async (id: string, format: "json" | "html") =>
    (await request(`/api/experience/results/${encodeURIComponent(id)}${format === "html" ? "?format=html" : ""}`)).blob(),
};
