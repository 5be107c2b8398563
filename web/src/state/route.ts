// Which view is shown, as the address says: #/servers/ID/VIEW, #/clusters/NAME, #/experience, #/ for the list of servers.

import { signal } from "@preact/signals";
import { decoded } from "./decoded";

export const VIEWS = ["overview", "charts", "instances", "tables", "disks", "compare", "settings", "events"] as const;
export type View = (typeof VIEWS)[number];

export type Route = { page: "servers" } | { page: "cluster"; name: string } | { page: "experience" } | { page: "server"; id: string; view: View };

export function parseRoute(fragment: string): Route {
  const [page, id, view] = fragment.replace(/^#?\/?/, "").split("/");
  if (page === "experience") return { page };
  if (page === "clusters" && id) return { page: "cluster", name: decoded(id) };
  if (page === "servers" && id) {
    return { page: "server", id: decoded(id), view: VIEWS.find((one) => one === view) ?? "overview" };
  }
  return { page: "servers" };
}

export function addressOf(route: Route): string {
  switch (route.page) {
    case "servers":
      return "#/";
    case "cluster":
      return `#/clusters/${encodeURIComponent(route.name)}`;
    case "experience":
      return "#/experience";
    case "server":
      return `#/servers/${encodeURIComponent(route.id)}/${route.view}`;
  }
}

export const route = signal<Route>({ page: "servers" });

export function startRouting(): void {
  const read = () => (route.value = parseRoute(location.hash));
  addEventListener("hashchange", read);
  read();
}

export function go(to: Route): void {
  location.hash = addressOf(to);
}
