import { useSignal } from "@preact/signals";
import { api, ApiError } from "../api/client";
import type { Server } from "../api/types";
import { StateBadge } from "../components/badge";
import { useRepeated } from "../components/refresh";
import { bytes } from "../format";
import { addressOf } from "../state/route";
import { text } from "../state/text";

/** The servers that the console knows. */
export function ServersPage() {
  const t = text.value;
  const servers = useSignal<Server[] | null>(null);
  const problem = useSignal<ApiError | null>(null);
  useRepeated(() => {
    api.servers().then(
      (answer) => {
        servers.value = answer;
        problem.value = null;
      },
      (error) => {
        if (error instanceof ApiError && error.status !== 0) problem.value = error;
      },
    );
  }, 3000, null);
  return (
    <section aria-labelledby="servers-title">
      <h1 id="servers-title">{t.servers.title}</h1>
      {problem.value && <p class="banner bad" role="alert">{problem.value.message} {problem.value.advice}</p>}
      {servers.value === null ? <p class="note">{t.loading}</p>
        : servers.value.length === 0 ? <p class="note">{t.servers.empty}</p>
        : <ul class="server-list">{servers.value.map((server) => <ServerCard key={server.id} server={server} />)}</ul>}
    </section>
  );
}

function ServerCard(props: { server: Server }) {
  const t = text.value.servers;
  const server = props.server;
  return (
    <li class="card server-card">
      <div class="server-head">
        <h2><a href={addressOf({ page: "server", id: server.id, view: "overview" })} title={t.open(server.name)}>{server.name}</a></h2>
        <StateBadge state={server.reachable ? server.state ?? "not installed" : "unreachable"} />
      </div>
      {server.error && <p class="problem">{server.error}</p>}
      {server.reachable && server.state_reason && <p class="note">{server.state_reason}</p>}
      <dl class="facts">
        <div><dt>{t.address}</dt><dd class="path">{server.address}</dd></div>
        <div><dt>{t.version}</dt><dd>{server.version ? `${server.flavour} ${server.version}` : "–"}</dd></div>
        <div><dt>{t.pool}</dt><dd>{server.pool_bytes ? bytes(server.pool_bytes) : "–"}</dd></div>
        <div><dt>{t.cache}</dt><dd>{server.cache_bytes ? bytes(server.cache_bytes) : "–"}</dd></div>
      </dl>
    </li>
  );
}
