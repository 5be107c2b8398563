// The console's HTTP interface over pretended servers. It serves web/dist as the real one does, with the same policy.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { PretendedServer } from "./model.mjs";

const dist = join(fileURLToPath(import.meta.url), "../../dist");
/** @type {Record<string, string>} */
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
/** @type {Record<string, number>} */
const REFERENCE = { oltp_read_only: 80, oltp_write_only: 33, oltp_read_write: 103 };

/** @param {import("node:http").ServerResponse} response @param {number} status @param {unknown} body @param {Record<string, string>} [headers] */
function answer(response, status, body, headers = {}) {
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

/** @param {import("node:http").IncomingMessage} request */
async function bodyOf(request) {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text ? JSON.parse(text) : {};
}

/** @param {number[]} differences @param {number} wanted @param {{slice_s: number, refill: boolean}} request @returns {import("../src/api/types").Comparison} */
function comparison(differences, wanted, request) {
  const enough = differences.length >= 20;
  const row = (/** @type {string} */ name, /** @type {string} */ unit, /** @type {number} */ serving, /** @type {number} */ bypass, /** @type {boolean} */ more) => {
    const difference = serving - bypass;
    return {
      name, title: name, unit, more_is_better: more, serving, bypass, difference, low: difference * (difference > 0 ? 0.9 : 1.1), high: difference * (difference > 0 ? 1.1 : 0.9),
      percent: (difference * 100) / bypass, differences: [...differences], found: /** @type {import("../src/api/types").Found} */ (enough ? "better" : "too few pairs"),
    };
  };
  return {
    server: "MariaDB 10.11.19", ended: "complete", why: null, verdict: enough ? "better" : "too few pairs", pairs: differences.length, pairs_wanted: wanted,
    pairs_for_a_verdict: 20, slice_s: request.slice_s, seconds: differences.length * 2 * request.slice_s, refill: request.refill, hurt_after_s: null, hurt_percent: null,
    figures: [row("statements_per_s", "1/s", 3973, 2043, true), row("read_mean_us", "us", 120, 2400, false), row("data_reads_per_s", "1/s", 310, 2900, false)],
    notes: ["InnoDB's pool keeps its contents from slice to slice."],
  };
}

export class MockConsole {
  /** @param {{token: string, port?: number}} options */
  constructor(options) {
    this.token = options.token;
    this.port = options.port ?? 0;
    this.demo = new PretendedServer("1", "demo");
    const replica = new PretendedServer("2", "replica");
    replica.reachable = false;
    replica.since = Date.now();
    this.servers = [this.demo, replica];
    /** What is being done to the pretended cluster. @type {any} */
    this.rolling = null;
    /** @type {Set<{id: string, response: import("node:http").ServerResponse}>} */
    this.streams = new Set();
    /** @type {any[]} */
    this.events = [{ at_ms: Date.now() - 60000, server: null, level: "info", text: "The console has started." },
      { at_ms: Date.now() - 59000, server: "2", level: "error", text: "replica does not answer: Connection refused" }];
    /** @type {Map<string, any>} */
    this.tasks = new Map();
    /** @type {any} */
    this.run = null;
    /** @type {any[]} */
    this.results = [];
    /** @type {any} */
    this.comparing = null;
    /** @type {import("node:http").Server | null} */
    this.http = null;
    this.timer = setInterval(() => this.tick(), 1000);
  }

  async open() {
    const http = createServer((request, response) => void this.handle(request, response).catch((error) => answer(response, 500, { error: String(error), advice: null })));
    this.http = http;
    await new Promise((resolve) => http.listen(this.port, "127.0.0.1", () => resolve(null)));
    const address = http.address();
    if (address && typeof address === "object") this.port = address.port;
    return `http://127.0.0.1:${this.port}/`;
  }

  /** As if the console were killed; its servers go on. */
  async shut() {
    const http = this.http;
    if (!http) return;
    http.closeAllConnections();
    await new Promise((resolve) => http.close(resolve));
  }

  async end() {
    clearInterval(this.timer);
    await this.shut();
  }

  /** @param {boolean} reachable */
  setReachable(reachable) {
    const server = this.demo;
    server.reachable = reachable;
    server.since = Date.now();
    if (!reachable) server.turn(false);
    this.event(reachable ? "info" : "error", reachable ? "demo answers again" : "demo does not answer: Connection refused");
  }

  /** @param {"info" | "warning" | "error"} level @param {string} text */
  event(level, text) {
    const event = { at_ms: Date.now(), server: "1", level, text };
    this.events.push(event);
    this.send("1", { type: "event", ...event });
  }

  /** @param {string} id @param {unknown} line */
  send(id, line) {
    for (const stream of this.streams) if (stream.id === id) stream.response.write(JSON.stringify(line) + "\n");
  }

  tick() {
    const now = Date.now();
    for (const server of this.servers) {
      if (server.reachable) this.send(server.id, { type: "figures", ...server.tick(now) });
      else this.send(server.id, { type: "unreachable", error: "Can't connect to the server: Connection refused", since_ms: server.since });
    }
    this.advance(now);
  }

  /** @param {any} run */
  keep(run) {
    this.results.push({ ...run, at_ms: Date.now() });
  }

  /** What was seen of each state of a run by hand. @param {any} run */
  sides(run) {
    const side = (/** @type {boolean} */ enabled) => {
      const own = run.points.filter((/** @type {any} */ one) => one.enabled === enabled);
      const mean = (/** @type {string} */ key) => own.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one[key], 0) / own.length;
      return own.length > 0 ? { qps: mean("qps"), p95_ms: mean("p95_ms") } : null;
    };
    [run.off, run.on] = [side(false), side(true)];
    if (run.off && run.on) run.gain_percent = (run.on.qps / run.off.qps - 1) * 100;
  }

  /** A run goes on for a second. @param {number} now */
  advance(now) {
    const run = this.run;
    const server = this.demo;
    if (!run || run.state !== "running") return;
    const figures = server.tick(now);
    server.history.pop();
    const point = { run: run.id, at_ms: now, phase: run.phase, qps: figures.qps, p95_ms: 2.2e6 / figures.qps * 1.1, enabled: server.state === "active" };
    run.points.push(point);
    this.send("1", { type: "run", ...point });
    const inPhase = run.points.filter((/** @type {any} */ one) => one.phase === run.phase);
    if (inPhase.length < run.seconds) return;
    const mean = (/** @type {string} */ key) => inPhase.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one[key], 0) / inPhase.length;
    const side = { qps: mean("qps"), p95_ms: mean("p95_ms") };
    if (run.mode === "compare" && run.phase === "off") {
      run.off = side;
      run.phase = "on";
      server.turn(true);
      return;
    }
    run.state = "done";
    if (run.mode === "compare") {
      run.on = side;
      run.gain_percent = (run.on.qps / run.off.qps - 1) * 100;
    } else this.sides(run);
    this.keep(run);
  }

  /** @param {PretendedServer} server @param {{action: string, path?: string, size?: number}} wanted */
  switch(server, wanted) {
    const on = wanted.action === "on";
    const texts = on ? ["Look whether it can work here", "Make the buffer pool smaller", "Make the cache file", "Switch on"] : ["Switch off", "Give the buffer pool its memory back"];
    const task = {
      id: String(this.tasks.size + 1), server: server.id, title: on ? "Switching on" : "Switching off", state: "running",
      steps: texts.map((text) => ({ text, state: "waiting" })), error: null, advice: null,
    };
    this.tasks.set(task.id, task);
    let step = 0;
    const begin = () => {
      const next = task.steps[step];
      if (next) next.state = "running";
    };
    begin();
    const timer = setInterval(() => {
      const now = task.steps[step];
      if (now) now.state = "done";
      step += 1;
      begin();
      if (step >= texts.length) {
        clearInterval(timer);
        if (wanted.path) server.settings.bpe_path = wanted.path;
        if (wanted.size) server.settings.bpe_size = Number(wanted.size);
        server.turn(on);
        task.state = "done";
        this.event("info", on ? "The extension was switched on." : "The extension was switched off.");
      }
      this.send(server.id, { type: "task", ...task });
    }, 350);
    return task;
  }

  /** A pair each second. @param {PretendedServer} server @param {{minutes: number, slice_s: number, refill: boolean}} wanted */
  compare(server, wanted) {
    const pairs = Math.max(1, Math.floor((wanted.minutes * 60) / (2 * wanted.slice_s)));
    const now = { running: true, pair: 0, pairs, in_bypass: false, statements_per_s: 4000, error: null, advice: null, found: /** @type {any} */ (null), stop: false };
    this.comparing = now;
    /** @type {number[]} */
    const differences = [];
    const timer = setInterval(() => {
      now.pair += 1;
      now.in_bypass = now.pair % 2 === 0;
      now.statements_per_s = now.in_bypass ? 2000 : 4000;
      differences.push(1900 + 400 * Math.sin(now.pair * 2.1));
      now.found = comparison(differences, pairs, wanted);
      now.running = !now.stop && now.pair < pairs;
      if (!now.running) {
        clearInterval(timer);
        now.found.ended = now.stop ? "interrupted" : "complete";
        now.found.why = now.stop ? "it was told to stop" : null;
      }
      const { stop: _, ...shown } = now;
      this.send(server.id, { type: "comparing", ...shown });
    }, 1000);
    return now;
  }

  /** @param {import("node:http").IncomingMessage} request @param {import("node:http").ServerResponse} response */
  async handle(request, response) {
    const url = new URL(request.url ?? "/", "http://localhost");
    response.setHeader("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'");
    response.setHeader("Cache-Control", "no-store");
    if (!url.pathname.startsWith("/api/")) return this.file(url.pathname, response);
    if (request.headers.authorization !== `Bearer ${this.token}`) return answer(response, 401, { error: "The token is missing or wrong.", advice: null });
    const [kind, id = "", what = "", more = ""] = url.pathname.split("/").slice(2);
    const body = request.method === "POST" ? await bodyOf(request) : {};
    if (kind === "about") return answer(response, 200, { version: "0.1.0", experience: true });
    if (kind === "events") return answer(response, 200, this.events);
    if (kind === "clusters") return this.clusters(id, what, body, response);
    if (kind === "tasks") return answer(response, 200, this.tasks.get(id));
    if (kind === "experience") return this.experience(id, what, body, url, response);
    if (kind !== "servers") return answer(response, 404, { error: "There is no such thing.", advice: null });
    if (!id) return answer(response, 200, this.servers.map((server) => server.about()));
    const server = this.servers.find((one) => one.id === id);
    if (!server) return answer(response, 404, { error: `There is no server ${id}.`, advice: null });
    switch (what) {
      case "live":
        return this.live(server, request, response);
      case "history":
        return answer(response, 200, { figures: server.history });
      case "details":
        return server.reachable ? answer(response, 200, server.details()) : answer(response, 502, { error: "The server does not answer.", advice: null });
      case "plan":
        return answer(response, 200, server.plan(body));
      case "switch": {
        const plan = server.plan(body);
        if (body.digest && body.digest !== plan.digest) {
          return answer(response, 409, { error: "the plan is no longer the one that was shown", advice: "check the plan as it is now", plan, differs: ["settings"] });
        }
        return answer(response, 202, this.switch(server, body));
      }
      case "compare":
        if (more === "stop") {
          if (this.comparing) this.comparing.stop = true;
          return answer(response, 204, null);
        }
        if (server.state !== "active") return answer(response, 422, { error: "the extension is disabled: there is nothing to compare", advice: "switch it on" });
        return answer(response, 202, this.compare(server, body));
      case "tables":
        server.setRule(body);
        return answer(response, 200, { applied: { bpe_tables: server.settings.bpe_tables }, warnings: [] });
      case "settings":
        Object.assign(server.settings, body);
        return answer(response, 200, { applied: body, warnings: [] });
    }
    return answer(response, 404, { error: "There is no such thing.", advice: null });
  }

  /** Both servers are a cluster. @param {string} name @param {string} what @param {any} body @param {import("node:http").ServerResponse} response */
  clusters(name, what, body, response) {
    const order = [...this.servers].reverse();
    if (!name) {
      return answer(response, 200, [{
        name: "shop", configured: true, problem: null, advice: null, order: order.map((server) => server.id), task: this.rolling,
        members: this.servers.map((server) => ({
          id: server.id, name: server.name, address: server.about().address, reachable: server.reachable, error: server.about().error,
          role: server === this.demo ? "primary" : "replica", state: "", errors: "", in_step: server.reachable, lag_s: server.reachable ? 0 : null, read_only: false, unseen: [],
          extension: server.state, installed: true, hit_ratio_percent: null, qps: 1, warm_percent: null, warm_age_s: null, ready: server.reachable,
          ready_reason: server.reachable ? `${server.name} is ready: primary, 0 s behind` : `${server.name} is not ready: Connection refused`,
        })),
      }]);
    }
    if (what === "plan") return answer(response, 200, { nodes: order.map((server) => ({ id: server.id, name: server.name, plan: server.plan(body) })), refused: null });
    if (what === "stop") return answer(response, 204, null);
    const task = { id: "cluster shop", server: "", title: "Switching on: shop", state: "running", steps: order.map((server) => ({ text: server.name, state: "waiting" })), error: null, advice: null };
    this.rolling = task;
    setTimeout(() => {
      // The replica is away: nothing is changed.
      const away = !this.servers.every((server) => server.reachable);
      const first = task.steps[0];
      if (first) first.state = away ? "failed" : "done";
      Object.assign(task, { state: away ? "failed" : "done", error: away ? "stopped: replica: not changed: replica does not answer. Done: none. Not reached: demo." : null });
    }, 1200);
    return answer(response, 202, task);
  }

  /** @param {PretendedServer} server @param {import("node:http").IncomingMessage} request @param {import("node:http").ServerResponse} response */
  live(server, request, response) {
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    response.flushHeaders();
    const stream = { id: server.id, response };
    this.streams.add(stream);
    request.on("close", () => this.streams.delete(stream));
  }

  /** @param {string} what @param {string} id @param {any} body @param {URL} url @param {import("node:http").ServerResponse} response */
  experience(what, id, body, url, response) {
    if (!what) {
      return answer(response, 200, { available: true, server: "1", tests: ["oltp_read_only", "oltp_write_only", "oltp_read_write", "sql"], missing: null, run: this.run, results: [...this.results].reverse() });
    }
    if (what === "run") {
      if (body.test === "sql" && /\bDROP\b/i.test(body.sql)) return answer(response, 400, { error: "Statement 1 cannot be prepared.", advice: "Look at its syntax." });
      if (body.mode === "compare") this.demo.turn(false);
      this.run = { id: String(Date.now()), ...body, state: "running", phase: body.mode === "compare" ? "off" : "manual", points: [], off: null, on: null, gain_percent: null, reference_gain_percent: REFERENCE[body.test] ?? null };
      return answer(response, 202, this.run);
    }
    if (what === "stop") {
      if (this.run) {
        this.run.state = "stopped";
        this.sides(this.run);
        this.keep(this.run);
      }
      response.writeHead(204);
      return response.end();
    }
    const result = this.results.find((one) => one.id === id);
    return answer(response, result ? 200 : 404, result ?? { error: "There is no such result.", advice: null }, { "Content-Disposition": `attachment; filename="result-${url.searchParams.get("format") ?? "json"}"` });
  }

  /** @param {string} path @param {import("node:http").ServerResponse} response */
  async file(path, response) {
    const wanted = normalize(path === "/" ? "/index.html" : path);
    try {
      const contents = await readFile(join(dist, wanted));
      response.writeHead(200, { "Content-Type": TYPES[extname(wanted)] ?? "application/octet-stream" });
      response.end(contents);
    } catch {
      answer(response, 404, { error: "There is no such file.", advice: "npm run build" });
    }
  }
}
