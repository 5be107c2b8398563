// What a person would try, in the order in which it is tried: each scenario leaves the server as the next one expects it.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { accessible, show, until } from "./browser.mjs";

/** @typedef {import("./browser.mjs").Watched} Watched */
/** @typedef {import("./browser.mjs").Page} Page */

/** The hit ratio that the ring shows. @param {Page} page */
const hits = async (page) => Number((await page.locator(".ring").getAttribute("data-hit")) ?? "0");
/** @param {Page} page */
const state = (page) => page.locator("h1 .badge").getAttribute("data-state");

/** @param {Watched} watched */
export async function wrongToken(watched) {
  const { subject } = watched;
  const page = await watched.page();
  await page.goto(subject.url);
  const field = page.getByLabel("Token", { exact: true });
  await field.fill("not the token");
  await page.getByRole("button", { name: "Open the console" }).click();
  await page.getByRole("alert").filter({ hasText: "This token is not the console's" }).waitFor();
  await accessible(page, "the token's form");
  await page.goto(`${subject.url}#token=another-wrong-one`);
  await page.getByRole("alert").filter({ hasText: "This token is not the console's" }).waitFor();
  assert.doesNotMatch(page.url(), /another-wrong-one/, "a token does not stay in the address");
  await field.fill(subject.token);
  await field.press("Enter");
  await page.getByRole("link", { name: subject.server, exact: true }).waitFor();
  assert.doesNotMatch(page.url(), /token/);
  await page.reload();
  await page.getByRole("link", { name: subject.server, exact: true }).waitFor();
  // A link from elsewhere takes the good token from no tab.
  await page.evaluate(() => (location.hash = "#token=one-more-wrong-one"));
  const banner = page.locator("[data-banner=link]");
  await banner.waitFor();
  await page.getByRole("link", { name: subject.server, exact: true }).waitFor();
  await accessible(page, "a link that was refused");
  assert.doesNotMatch(page.url(), /one-more-wrong-one/);
  await banner.getByRole("button").click();
  await banner.waitFor({ state: "hidden" });
  await page.reload();
  await page.getByRole("link", { name: subject.server, exact: true }).waitFor();
  await page.context().close();
}

/** @param {Watched} watched */
export async function switchOn(watched) {
  const { subject } = watched;
  const page = await watched.at("overview");
  await page.locator("[data-verdict=off], [data-verdict='not installed']").waitFor();
  const button = page.getByRole("switch");
  assert.equal(await button.getAttribute("aria-checked"), "false");

  // By keyboard alone: the dialog opens, Esc closes it, and the focus is where it was.
  await button.focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  assert.ok(await button.evaluate((element) => element === document.activeElement), "the focus is back at the switch");

  // What cannot be done is said before it is tried.
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Size").fill("many");
  await dialog.getByText("Not a size.").waitFor();
  assert.ok(await dialog.locator("[data-confirm]").isDisabled());
  await dialog.getByLabel("Size").fill(subject.size);
  await dialog.getByLabel("Path on the fast disk").fill("/nowhere");
  await dialog.locator(".banner.bad").waitFor();
  assert.ok(await dialog.locator("[data-confirm]").isDisabled());
  await dialog.getByLabel("Path on the fast disk").fill(subject.path);
  await dialog.locator(".changes li").first().waitFor();
  await accessible(page, "the switch's dialog");
  await watched.picture(page, "switch");

  // Another page is faster: what was confirmed is not done, and the plan as it is now is shown.
  const set = (/** @type {number} */ instances) => page.evaluate(async ([token, value]) => {
    const [server] = await (await fetch("/api/servers", { headers: { Authorization: `Bearer ${token}` } })).json();
    const init = { method: "POST", headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" }, body: JSON.stringify({ bpe_instances: value }) };
    return (await fetch(`/api/servers/${server.id}/settings`, init)).status;
  }, /** @type {const} */ ([subject.token, instances]));
  assert.equal(await set(2), 200);
  await dialog.locator("[data-confirm]:enabled").click();
  const changed = dialog.getByRole("alert").locator("[data-plan-changed]");
  await changed.filter({ hasText: "Nothing was done" }).filter({ hasText: "settings of the extension" }).waitFor();
  assert.equal(await dialog.locator("[data-task]").count(), 0, "nothing was begun");
  await dialog.locator(".changes li").first().waitFor();
  await accessible(page, "a plan that has changed");
  await watched.picture(page, "switch-changed");

  // Steps that were put back after a failure are no longer shown as done, also to those who hear the page.
  const failed = {
    id: "of-this-test", server: "1", title: "Switching on", state: "failed", error: "it failed", advice: null,
    steps: [["write the library", "remains"], ["set and switch on", "undone"], ["lower the buffer pool", "failed"], ["make it permanent", "waiting"]]
      .map(([text, state]) => ({ text, state })),
  };
  await page.route("**/api/servers/*/switch", (route) => route.fulfill({ status: 202, json: failed }));
  await dialog.locator("[data-confirm]:enabled").click();
  await dialog.locator("[data-task=failed]").waitFor();
  const steps = (await dialog.locator(".steps li").allInnerTexts()).map((text) => text.replace(/\s+/g, " "));
  assert.deepEqual(steps.slice(0, 2), ["! write the library (could not be undone)", "↺ set and switch on (undone)"]);
  await accessible(page, "a failed task");
  await watched.picture(page, "switch-failed");
  await page.unroute("**/api/servers/*/switch");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  await button.click();
  await dialog.getByLabel("Size").fill(subject.size);
  await dialog.getByLabel("Path on the fast disk").fill(subject.path);

  await dialog.locator("[data-confirm]:enabled").click();
  await dialog.locator("[data-task=done]").waitFor({ timeout: 30_000 });
  await dialog.getByRole("button", { name: "Close" }).click();

  await until(() => state(page), (now) => now === "active", "the state");
  assert.equal(await button.getAttribute("aria-checked"), "true");
  const first = await until(() => hits(page), (now) => now > 0, "the first hits");
  await until(() => hits(page), (now) => now > first, `a hit ratio above ${first}`, 30_000);
  await page.context().close();
}

/** Every view, with something of the server in it. @param {Watched} watched */
export async function views(watched) {
  const page = await watched.at("overview");
  await until(() => hits(page), (now) => now >= 50, "a hit ratio of half", 40_000);
  await page.locator("[data-verdict=helps], [data-verdict=alike], [data-verdict=costs]").waitFor(); // by the disks of this machine
  await page.locator(".explain li").first().waitFor();
  assert.match(await page.locator("[data-tile=qps] b").innerText(), /\d/);
  await accessible(page, "the overview");
  await watched.picture(page, "overview", true);

  await show(page, "charts");
  await page.locator(".chart canvas").nth(6).waitFor();
  await page.getByText("As a table").first().click();
  assert.match(await page.locator(".chart table").first().innerText(), /Queries/);
  await page.getByRole("button", { name: "1 min" }).click();
  await until(() => page.locator(".chart canvas").first().evaluate((canvas) => canvas.getBoundingClientRect().width), (now) => now > 100, "a chart");
  await accessible(page, "the charts");
  await watched.picture(page, "charts", true);

  await show(page, "instances");
  await page.locator(".instance").first().waitFor();
  await show(page, "tables");
  await page.getByRole("button", { name: "Data files" }).click();
  await page.locator("tbody tr").first().waitFor();
  await page.getByRole("button", { name: "Tables" }).click();
  await page.locator("tbody tr").first().waitFor();
  await page.getByRole("columnheader", { name: "Table" }).getByRole("button").click();
  const names = await page.locator("tbody th").allInnerTexts();
  assert.deepEqual(names, [...names].sort((a, b) => a.localeCompare(b)), "sorted by name");
  await rules(page);
  await page.getByLabel("Find").fill("no such table");
  await until(() => page.locator("tbody tr").count(), (now) => now === 0, "no row");
  await accessible(page, "the tables");
  await show(page, "disks");
  await page.locator(".disk").getByText("works").waitFor();
  await accessible(page, "the disks");
  await page.context().close();
}

/** Where the server refuses its read latencies, the chart says what the account lacks. @param {Watched} watched */
export async function latencies(watched) {
  const page = await watched.at("charts");
  const chart = (/** @type {string} */ title) => page.locator("figure.chart").filter({ has: page.getByRole("heading", { name: title, exact: true }) });
  await chart("Read latency").getByText("Data disk p50").waitFor();
  if (!watched.subject.refuses) return page.context().close();
  await watched.subject.do("refuse-reports");
  await chart("Read latency").getByText("only to accounts with the PROCESS privilege").waitFor();
  await page.locator("[data-preference=language]").selectOption("ja");
  await page.getByText("PROCESS 権限を持つアカウントだけです").waitFor();
  await page.locator("[data-preference=language]").selectOption("zh-TW");
  await page.getByText("具有 PROCESS 權限的帳號").waitFor();
  await page.locator("[data-preference=language]").selectOption("en");
  await watched.subject.do("give-reports");
  await chart("Read latency").getByText("not timed by InnoDB").waitFor();
  await page.context().close();
}

/** Servers that belong together: each with its role, and a change of all that stops where one is away. @param {Watched} watched */
export async function clusters(watched) {
  const { subject } = watched;
  if (!subject.cluster || subject.replica) return "no server that is away";
  const page = await watched.page();
  await page.goto(`${subject.url}#token=${subject.token}`);
  await page.getByRole("link", { name: `Cluster ${subject.cluster}`, exact: true }).click();
  const row = (/** @type {string} */ name) => page.locator(`[data-member="${name}"]`);
  await row("demo").locator("[data-role=primary]").waitFor();
  await row("replica").getByText("unreachable").waitFor();
  assert.match(await row("demo").innerText(), /the measure/);
  assert.match(await row("replica").innerText(), /not ready/);
  await accessible(page, "a cluster");
  await watched.picture(page, "cluster", true);

  await page.getByRole("button", { name: "Switch all on …" }).click();
  const dialog = page.getByRole("dialog");
  assert.ok(await dialog.getByLabel("One after the other").isChecked());
  await dialog.getByLabel("Size").fill("many");
  await dialog.getByText("Not a size.").waitFor();
  assert.ok(await dialog.locator("[data-confirm]").isDisabled());
  await dialog.getByLabel("Size").fill(subject.size);
  await dialog.getByLabel("Path on the fast disk").fill(subject.path);
  await dialog.locator("[data-plan=replica]").waitFor();
  const order = await dialog.locator("[data-plan] > h3").first().innerText();
  assert.equal(order, "replica", "the primary is the last");
  await dialog.getByText("It stops at the first that fails").waitFor();
  await accessible(page, "the dialog for a cluster");
  await dialog.locator("[data-confirm]:enabled").click();
  await page.locator("[data-task=failed]").waitFor();
  await page.getByText("Not reached: demo.").waitFor();
  await page.getByRole("log").getByText("replica", { exact: true }).first().waitFor();
  await page.locator("[data-preference=language]").selectOption("ja");
  await page.getByRole("heading", { name: "クラスター shop" }).waitFor();
  await page.locator("[data-preference=language]").selectOption("zh-TW");
  await page.getByRole("heading", { name: "叢集 shop" }).waitFor();
  await page.setViewportSize({ width: 360, height: 740 });
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360, "it fits a phone");
  await page.context().close();
  return undefined;
}

/** A primary and its replica: on one after the other, off at once. @param {Watched} watched */
export async function rolling(watched) {
  const { subject } = watched;
  if (!subject.cluster || !subject.replica) return "no replica that can be switched";
  const { server: primary, replica } = subject;
  const open = async () => {
    const page = await watched.page();
    await page.goto(`${subject.url}#token=${subject.token}`);
    await page.getByRole("link", { name: `Cluster ${subject.cluster}`, exact: true }).click();
    return page;
  };
  const page = await open();
  const row = (/** @type {string} */ name) => page.locator(`[data-member="${name}"]`);
  const shown = (/** @type {string} */ name, /** @type {string} */ state) => row(name).locator(`[data-state="${state}"]`);
  await row(primary).locator("[data-role=primary]").waitFor();
  await row(replica).locator("[data-role=replica]").waitFor();
  await row(replica).getByText("0 s", { exact: true }).waitFor();
  await row(primary).getByText("the measure").waitFor();
  for (const name of [primary, replica]) {
    await row(name).getByText("ready", { exact: true }).waitFor();
    await shown(name, "not installed").waitFor();
  }

  await page.getByRole("button", { name: "Switch all on …" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Size").fill(subject.size);
  await dialog.locator(`[data-plan="${primary}"] .changes li`).first().waitFor();
  const order = await dialog.locator("[data-plan]").evaluateAll((all) => all.map((one) => one.getAttribute("data-plan")));
  assert.deepEqual(order, [replica, primary], "the primary is the last");
  await accessible(page, "the dialog for two servers");
  await watched.picture(page, "cluster-plan", true);
  await dialog.locator("[data-confirm]:enabled").click();
  await page.locator("[data-task=running]").waitFor();
  await shown(replica, "active").waitFor({ timeout: 60_000 });
  assert.equal(await shown(primary, "active").count(), 0, "the replica is watched first");
  // Somebody else sees it, and cannot begin another one.
  const other = await open();
  await other.locator("[data-task=running]").waitFor();
  assert.ok(await other.getByRole("button", { name: "Switch all off …" }).isDisabled());
  await other.context().close();
  await page.locator("[data-task=done]").waitFor({ timeout: 120_000 });
  await shown(primary, "active").waitFor();
  for (const name of [primary, replica]) await page.getByRole("log").getByText(name, { exact: true }).first().waitFor();
  await accessible(page, "a cluster that is on");
  await watched.picture(page, "cluster-on", true);

  await page.getByRole("button", { name: "Switch all off …" }).click();
  await dialog.getByLabel("All at once").check();
  await dialog.locator("[data-confirm]:enabled").click();
  for (const name of [primary, replica]) await shown(name, "disabled").waitFor({ timeout: 60_000 });
  await page.locator("[data-task=done]").waitFor();
  await page.context().close();
  return undefined;
}

/** Serving and bypass in turn: it begins, another page sees how far it is, it is stopped, and what was found is shown. @param {Watched} watched */
export async function compare(watched) {
  const page = await watched.at("compare");
  const form = page.locator(".compare-form");
  await form.getByLabel("Minutes").fill("5");
  await form.getByLabel("Seconds at a time").fill("2");
  await accessible(page, "the form of a comparison");
  await form.getByRole("button", { name: "Compare" }).click();
  await page.locator("[data-comparing]").waitFor();
  assert.ok(await page.getByRole("switch").isDisabled(), "nobody switches meanwhile");
  const other = await watched.at("compare");
  await other.locator("[data-comparing]").waitFor({ timeout: 30_000 });
  await other.context().close();
  // Bypass may hurt at once on a slow machine, which ends it, too.
  await page.locator("[data-compared]").waitFor({ timeout: 60_000 });
  const stop = page.getByRole("button", { name: "Stop" });
  if (await stop.isVisible()) await stop.click();
  await form.waitFor({ timeout: 30_000 });
  await page.locator("[data-compared] h3").filter({ hasText: /statements per second|No pair/ }).waitFor();
  if ((await page.locator("[data-figure]").count()) > 0) {
    assert.match(await page.locator("[data-figure=statements_per_s] td").first().innerText(), /\d/);
  }
  await page.locator(".compare-notes li").first().waitFor();
  await accessible(page, "a comparison");
  await watched.picture(page, "compare", true);
  await until(() => state(page), (now) => now === "active", "the server serves again");
  await page.context().close();
}

/** The switch at a table: it shows what the server says then, and the settings have the rule. @param {import("playwright-core").Page} page */
async function rules(page) {
  const first = page.locator("tbody tr").first();
  const name = (await first.locator("th").innerText()).trim();
  const rule = page.getByLabel(`Rule for ${name}`, { exact: true });
  assert.equal(await rule.inputValue(), "normal");
  for (const [action, said] of [["exclude", "Not cached"], ["prefer", "Preferred"], ["limit", "Limited"]]) {
    await rule.selectOption(action ?? "");
    await page.getByRole("status").filter({ hasText: `${name}: ${said}.` }).waitFor();
    await until(() => rule.inputValue(), (now) => now === action, `the rule is ${action}`);
  }
  const percent = page.getByLabel(`Percent of the cache for ${name}`, { exact: true });
  assert.equal(await percent.inputValue(), "20");
  await percent.fill("35");
  await percent.press("Enter");
  await until(() => percent.inputValue(), (now) => now === "35", "another limit");
  await accessible(page, "a rule for a table");
  await show(page, "settings");
  const all = page.getByLabel("bpe_tables", { exact: false });
  await until(() => all.inputValue(), (now) => now === `limit 35% ${name}`, "the rules in the settings");
  await show(page, "tables");
  await page.getByLabel(`Rule for ${name}`, { exact: true }).selectOption("normal");
  await page.getByRole("status").filter({ hasText: `${name}: As usual.` }).waitFor();
}

/** @param {Watched} watched */
export async function settings(watched) {
  const page = await watched.at("settings");
  const field = page.locator("[name=bpe_io_capacity]");
  await field.fill("x");
  assert.ok(await page.getByRole("button", { name: "Apply" }).isDisabled());
  await field.fill("5000");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByRole("status").filter({ hasText: "Applied." }).waitFor();
  await until(() => field.inputValue(), (now) => now === "5000", "the new value");
  await field.fill("0");
  await page.getByRole("button", { name: "Apply" }).click();
  await until(() => field.inputValue(), (now) => now === "0", "the old value");
  // What would empty the cache is asked again.
  await page.locator("[name=bpe_instances]").fill("3");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByRole("dialog").getByText("The cache is rebuilt").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  await accessible(page, "the settings");
  await show(page, "events");
  await page.locator(".event-list li").first().waitFor();
  await page.context().close();
}

/** @param {Watched} watched */
export async function languages(watched) {
  const words = /** @type {const} */ ([["ja-JP", "ja", "概要"], ["zh-HK", "zh-TW", "總覽"], ["de-DE", "en", "Overview"]]);
  for (const [locale, language, word] of words) {
    const page = await watched.at("overview", { locale });
    assert.equal(await page.locator("html").getAttribute("lang"), language);
    await page.locator(".tabs").getByText(word, { exact: true }).waitFor();
    if (locale === "ja-JP") {
      await page.locator(".explain li").first().waitFor();
      assert.match(await page.locator(".explain li").first().innerText(), /[ぁ-ん]/, "sentences are translated");
      await watched.picture(page, "japanese", true);
      // Chosen by hand, it stays.
      await page.locator("[data-preference=language]").selectOption("en");
      await page.locator(".tabs").getByText("Overview", { exact: true }).waitFor();
      await page.reload();
      await page.locator(".tabs").getByText("Overview", { exact: true }).waitFor();
    }
    await page.context().close();
  }
}

/** 360 pixels wide, and dark. @param {Watched} watched */
export async function phone(watched) {
  const page = await watched.at("overview", { viewport: { width: 360, height: 740 }, colorScheme: "dark", deviceScaleFactor: 2 });
  await until(() => hits(page), (now) => now > 0, "figures");
  const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const shade = Math.max(...(back.match(/\d+/g) ?? []).slice(0, 3).map(Number));
  assert.ok(shade < 60, `a dark page is not ${back}`);
  await accessible(page, "the dark page");
  await watched.picture(page, "phone");
  for (const view of ["overview", "charts", "instances", "tables", "disks", "settings", "events"]) {
    await show(page, view);
    await page.locator(".view h2, .view h3").first().waitFor();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 360, `${view} is ${wide} pixels wide`);
  }
  await page.getByRole("switch").click();
  const box = await page.locator("dialog").boundingBox();
  assert.ok(box && box.x >= 0 && box.x + box.width <= 360, `the dialog fits: ${JSON.stringify(box)}`);
  await page.keyboard.press("Escape");
  await page.locator("[data-preference=theme]").selectOption("light");
  assert.equal(await page.locator("html").getAttribute("data-theme"), "light");
  await page.context().close();
}

/** @param {Watched} watched */
export async function experience(watched) {
  if (!watched.subject.experience) return "no demonstration server";
  const page = await watched.at("overview");
  await page.getByRole("link", { name: "Experience" }).click();
  await page.locator("[name=test]").selectOption("oltp_read_only");
  await page.getByLabel("Seconds of each phase").fill(watched.subject.seconds);
  await page.getByLabel("Threads").fill("4");
  await page.getByRole("button", { name: "Start" }).click();
  await page.locator(".live-controls").waitFor();
  await page.locator("[data-gain]").waitFor({ timeout: 120_000 });
  assert.match(await page.locator("[data-gain]").innerText(), /%/);
  await page.locator("section.result .reference").getByText("+80%").waitFor();
  await accessible(page, "the experience page");
  await watched.picture(page, "experience", true);
  await page.locator("[data-result=done]").waitFor();
  // What is kept is what is shown.
  const shown = await page.locator("[data-result] .sides td b").allInnerTexts();
  const kept = JSON.parse(await keep(page, "JSON", /^bpe-oltp_read_only-.*\.json$/));
  assert.equal(kept.state, "done");
  assert.deepEqual(shown.map(digits), [kept.off.qps, kept.on.qps].map((qps) => String(Math.round(qps))));
  for (const phase of ["off", "on"]) {
    const points = kept.points.filter((/** @type {any} */ point) => point.phase === phase);
    assert.ok(points.length >= 2 && points.every((/** @type {any} */ point) => point.enabled === (phase === "on")), `${phase} is measured in its state: ${JSON.stringify(points)}`);
  }
  if (watched.subject.real) {
    const html = await keep(page, "Page", /^bpe-oltp_read_only-.*\.html$/);
    assert.match(html, /<svg/);
    assert.doesNotMatch(html, /https?:/, "the page asks nobody");
  }
  await page.context().close();
  return undefined;
}

/** The digits of a number as it is shown. @param {string} text */
const digits = (text) => text.replace(/\D/g, "");

/** Downloads the newest result. @param {Page} page @param {string} what @param {RegExp} name */
async function keep(page, what, name) {
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: `as ${what}` }).first().click()]);
  assert.match(file.suggestedFilename(), name);
  return readFile(await file.path(), "utf8");
}

/** The server is killed and comes back; after that so is the console. @param {Watched} watched */
export async function lost(watched) {
  const { subject } = watched;
  const page = await watched.at("overview");
  await page.locator("[data-tile=qps]").waitFor();
  await subject.do("kill-server");
  const banner = page.locator("[data-banner=server]");
  await banner.waitFor();
  assert.ok(await page.getByRole("switch").isDisabled(), "nothing can be switched on a server that is away");
  await accessible(page, "a lost server");
  const list = await watched.page();
  await list.goto(`${subject.url}#token=${subject.token}`);
  await list.locator("[data-state=unreachable]").first().waitFor();
  await list.context().close();
  await subject.do("start-server");
  await banner.waitFor({ state: "hidden", timeout: 30_000 });
  await page.locator("[data-verdict=unreachable]").waitFor({ state: "hidden" });

  await subject.do("kill-console");
  const other = page.locator("[data-banner=console]");
  await other.waitFor();
  await subject.do("start-console");
  await other.waitFor({ state: "hidden", timeout: 30_000 });
  await page.locator("[data-tile=qps]").waitFor();
  await show(page, "events");
  await page.locator(".event-list li").first().waitFor();
  await page.context().close();
}

/** @param {Watched} watched */
export async function switchOff(watched) {
  const page = await watched.at("overview");
  await until(() => state(page), (now) => now === "active", "the state");
  await page.getByRole("switch").click();
  const dialog = page.getByRole("dialog");
  await dialog.locator("[data-confirm]:enabled").click();
  await dialog.locator("[data-task=done]").waitFor({ timeout: 30_000 });
  await page.keyboard.press("Escape");
  await until(() => state(page), (now) => now === "disabled" || now === "not installed", "the state");
  await page.locator("[data-verdict=off], [data-verdict='not installed']").waitFor();
  await page.context().close();
}
