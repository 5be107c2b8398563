// Bundles the unit tests and runs them with node's own runner.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "bpe-web-"));
try {
  const tests = readdirSync(join(here, "unit")).filter((name) => name.endsWith(".test.ts"));
  await build({
    entryPoints: tests.map((name) => join(here, "unit", name)),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node18",
    define: { WEB_FOLDER: JSON.stringify(join(here, "..")) },
    logLevel: "warning",
  });
  const files = tests.map((name) => join(folder, name.replace(/\.ts$/, ".mjs")));
  process.exitCode = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
