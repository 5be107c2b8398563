// Chromium, and pages in it that are watched: nothing may go to another host, and nothing may be complained about.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const engine = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Without these, Chromium looks for its maker's hosts at every start. */
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"];

/** Complaints that belong to what is tried: a token that is refused, and connections that are cut. */
const EXPECTED = [/status of 401/, /status of 409/, /net::ERR_CONNECTION_REFUSED/, /net::ERR_INCOMPLETE_CHUNKED_ENCODING/, /net::ERR_EMPTY_RESPONSE/, /net::ERR_CONNECTION_RESET/, /net::ERR_CONNECTION_CLOSED/, /net::ERR_SOCKET_NOT_CONNECTED/, /status of 502/];

/** @typedef {import("playwright-core").Page} Page */

export class Watched {
  /** @param {import("./subject.mjs").Subject} subject @param {string | undefined} screenshots */
  constructor(subject, screenshots) {
    this.subject = subject;
    this.screenshots = screenshots;
    /** @type {string[]} */
    this.complaints = [];
    /** @type {import("playwright-core").Browser | null} */
    this.browser = null;
    if (screenshots) mkdirSync(screenshots, { recursive: true });
  }

  async start() {
    this.browser = await chromium.launch({ executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ARGUMENTS });
  }

  /** A page with a profile of its own. @param {import("playwright-core").BrowserContextOptions} [options] @returns {Promise<Page>} */
  async page(options = {}) {
    assert(this.browser);
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 860 }, locale: "en-US", colorScheme: "light", reducedMotion: "reduce", ...options });
    context.setDefaultTimeout(15_000);
    const page = await context.newPage();
    const host = new URL(this.subject.url).host;
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (["http:", "https:", "ws:", "wss:"].includes(url.protocol) && url.host !== host) this.complaints.push(`request to ${request.url()}`);
      if (url.href.includes(this.subject.token)) this.complaints.push(`the token is in ${url.href}`);
    });
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type()) && !EXPECTED.some((one) => one.test(message.text()))) this.complaints.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => this.complaints.push(`exception: ${error.stack ?? error.message}`));
    return page;
  }

  /** A page that is logged in, at a view. @param {string} view @param {import("playwright-core").BrowserContextOptions} [options] */
  async at(view, options) {
    const page = await this.page(options);
    await page.goto(`${this.subject.url}#token=${this.subject.token}`);
    await page.getByRole("link", { name: this.subject.server, exact: true }).click();
    await page.locator(".tabs").waitFor();
    await show(page, view);
    return page;
  }

  /** @param {Page} page @param {string} name @param {boolean} [whole] */
  async picture(page, name, whole = false) {
    if (this.screenshots) await page.screenshot({ path: join(this.screenshots, `${name}.png`), fullPage: whole });
  }

  async end() {
    await this.browser?.close();
  }
}

/** Goes to a view of the server that the page shows. @param {Page} page @param {string} view */
export async function show(page, view) {
  await page.locator(`.tabs a[href$="/${view}"]`).click();
  await page.locator(`.tabs a[href$="/${view}"][aria-current=page]`).waitFor();
}

/** Waits until something read from the page is as wanted. @template T @param {() => Promise<T>} read @param {(value: T) => boolean} wanted @param {string} what @param {number} [ms] @returns {Promise<T>} */
export async function until(read, wanted, what, ms = 60_000) {
  const limit = Date.now() + ms;
  for (;;) {
    const value = await read();
    if (wanted(value)) return value;
    if (Date.now() > limit) throw new Error(`${what}: still ${JSON.stringify(value)} after ${ms / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, 150));
  }
}

/** What the accessibility engine finds wrong. @param {Page} page @param {string} where */
export async function accessible(page, where) {
  // The page's policy forbids scripts that are not its own; the debugger may run them all the same.
  await page.evaluate(engine);
  const found = await page.evaluate(async () => {
    // @ts-expect-error the engine, which was put there a moment ago
    const result = await globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] });
    return result.violations.map((/** @type {any} */ one) => `${one.id}: ${one.help} (${one.nodes.slice(0, 3).map((/** @type {any} */ node) => node.target.join(" ") + " " + (node.any[0]?.message ?? "")).join("; ")})`);
  });
  assert.deepEqual(found, [], `accessibility of ${where}`);
}
