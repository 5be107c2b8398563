import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

declare const WEB_FOLDER: string;

interface Locked {
  packages: Record<string, { resolved?: string; license?: string; integrity?: string }>;
}
const text = readFileSync(join(WEB_FOLDER, "package-lock.json"), "utf8");
const packages = Object.entries((JSON.parse(text) as Locked).packages).filter(([path]) => path !== "");

test("the lock file tells contents, not where they come from", () => {
  for (const [path, one] of packages) {
    assert.equal(one.resolved, undefined, path);
    assert.match(one.integrity ?? "", /^sha512-/, path);
  }
});

test("licences fit GPL-2.0-or-later", () => {
  const fitting = ["MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "Apache-2.0", "MPL-2.0"];
  for (const [path, one] of packages) assert.ok(fitting.includes(one.license ?? ""), `${path}: ${one.license}`);
});
