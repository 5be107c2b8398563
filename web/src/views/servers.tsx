import { useSignal } from "@preact/signals";
import { api, ApiError } from "../api/client";
import type { Cluster, Server } from "../api/types";
import { StateBadge } from "../components/badge";
import { Name } from "../components/name";
import { useRepeated } from "../components/refresh";
import { bytes, visible } from "../format";
import { addressOf } from "../state/route";
import { text } from "../state/text";

/** The servers that the console knows. */
export function ServersPage() {
  const t = text.value;
  const servers = useSignal<Server[] | null>(null);
  const clusters = useSignal<Cluster[]>([]);
  const problem = useSignal<ApiError | null>(null);
  useRepeated(() => {
    Promise.all([api.servers(), api.clusters()]).then(
      ([answer, groups]) => {
        servers.value = answer;
        clusters.value = groups;
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
        : <Grouped servers={servers.value} clusters={clusters.value} />}
    </section>
  );
}

/** Servers of a cluster stand together, those without one come last. */
function Grouped(props: { servers: Server[]; clusters: Cluster[] }) {
  const t = text.value.clusters;
  const list = (servers: Server[]) => <ul class="server-list">{servers.map((server) => <ServerCard key={server.id} server={server} />)}</ul>;
  const among = (cluster: Cluster) => props.servers.filter((server) => cluster.members.some((member) => member.id === server.id));
  const alone = props.servers.filter((server) => !props.clusters.some((cluster) => among(cluster).includes(server)));
  return (
    <>
      {props.clusters.map((cluster) => (
        <section key={cluster.name} class="cluster" aria-label={t.title(visible(cluster.name))}>
          <h2><a href={addressOf({ page: "cluster", name: cluster.name })}><Name text={t.title(cluster.name)} /></a></h2>
          {cluster.problem && <p class="problem" lang="en"><Name text={cluster.problem} /></p>}
          {list(among(cluster))}
        </section>
      ))}
      {props.clusters.length > 0 && alone.length > 0 && <h2 class="cluster">{t.others}</h2>}
      {alone.length > 0 && list(alone)}
    </>
  );
}

function ServerCard(props: { server: Server }) {
  const t = text.value.servers;
  const server = props.server;
  return (
    <li class="card server-card">
      <div class="server-head">
        <h2><a href={addressOf({ page: "server", id: server.id, view: "overview" })} title={t.open(visible(server.name))}><Name text={server.name} /></a></h2>
        <StateBadge state={server.reachable ? server.state ?? "not installed" : "unreachable"} />
      </div>
      {server.error && <p class="problem"><Name text={server.error} /></p>}
      {server.reachable && server.state_reason && <p class="note"><Name text={server.state_reason} /></p>}
      <dl class="facts">
        <div><dt>{t.address}</dt><dd class="path"><Name text={server.address} /></dd></div>
        {server.role && <div><dt>{text.value.clusters.role}</dt><dd>{text.value.clusters.roles[server.role] ?? server.role}</dd></div>}
        <div><dt>{t.version}</dt><dd>{server.version ? `${server.flavour} ${server.version}` : "–"}</dd></div>
        <div><dt>{t.pool}</dt><dd>{server.pool_bytes ? bytes(server.pool_bytes) : "–"}</dd></div>
        <div><dt>{t.cache}</dt><dd>{server.cache_bytes ? bytes(server.cache_bytes) : "–"}</dd></div>
      </dl>
    </li>
  );
}
