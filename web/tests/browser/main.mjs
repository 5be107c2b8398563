// Tests of the page in Chromium.
//
//   node tests/browser/main.mjs --mock [--screenshots FOLDER] [--only NAME]
//   node tests/browser/main.mjs --url URL --token TOKEN --server NAME --path PATH --size SIZE [--experience 1] ...
//   node tests/browser/main.mjs --url URL --token TOKEN --server NAME --replica NAME --cluster NAME --size SIZE --only rolling
//
// Prints a line for each scenario, and `N passed, N failed` at the end. The built page (`npm run build`) is tested.

import { Watched } from "./browser.mjs";
import * as scenarios from "./scenarios.mjs";
import { pretended, real } from "./subject.mjs";

/** @type {Record<string, string>} */
const options = {};
for (let i = 2; i < process.argv.length; i++) {
  const name = (process.argv[i] ?? "").replace(/^--/, "");
  options[name] = name === "mock" ? "1" : process.argv[++i] ?? "";
}

const ORDER = ["wrongToken", "switchOn", "views", "clusters", "rolling", "latencies", "compare", "settings", "languages", "phone", "switchOff", "experience", "lost"];

const subject = options["mock"] ? await pretended() : real(options);
const watched = new Watched(subject, options["screenshots"]);
/** @type {Record<string, (watched: Watched) => Promise<string | undefined | void>>} */
const all = scenarios;
let [passed, failed] = [0, 0];
try {
  await watched.start();
  for (const name of ORDER) {
    const scenario = all[name];
    if (!scenario || (options["only"] && options["only"] !== name)) continue;
    const began = Date.now();
    try {
      const skipped = await scenario(watched);
      const complaints = watched.complaints.splice(0);
      if (complaints.length > 0) throw new Error(`the browser complains:\n    ${complaints.slice(0, 5).join("\n    ")}`);
      passed += 1;
      console.log(`ok   ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)${skipped ? `: ${skipped}` : ""}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL ${name}: ${error instanceof Error ? error.message : error}`);
      break; // the next ones build on it
    }
  }
} finally {
  await watched.end();
  await subject.end();
}
console.log(`browser: ${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
