import "./browser";
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { PLAN_PARTS, STEP_STATES } from "../../src/api/figures";
import { languageOf, LANGUAGES, MESSAGES } from "../../src/messages";
import { chosenLanguage } from "../../src/state/preferences";
import { fill, saidText, sentenceText } from "../../src/state/sentence";

declare const WEB_FOLDER: string;
const holes = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map((match) => match[1]).sort();

test("the language is the first of the browser's that there is", () => {
  assert.equal(languageOf(["ja-JP", "en"]), "ja");
  assert.equal(languageOf(["fr-FR", "ja"]), "ja");
  for (const tag of ["zh-TW", "zh-HK", "zh-MO", "zh-Hant", "zh-Hant-TW"]) assert.equal(languageOf([tag]), "zh-TW", tag);
  assert.equal(languageOf(["zh-CN", "zh-Hans"]), "en", "simplified characters are another script");
  assert.equal(languageOf(["en-GB", "ja"]), "en");
  assert.equal(languageOf([]), "en");
});

test("no message is empty, and every language has its own", () => {
  const texts = (value: unknown, path: string): [string, string][] => {
    if (typeof value === "string") return [[path, value]];
    if (typeof value === "function") return [[path, String((value as (...parts: string[]) => string)("«1»", "«2»", "«3»"))]];
    return Object.entries(value as object).flatMap(([key, inner]) => texts(inner, `${path}.${key}`));
  };
  const english = new Map(texts(MESSAGES.en, ""));
  for (const language of LANGUAGES) {
    const own = texts(MESSAGES[language], "");
    for (const [path, text] of own) {
      assert.notEqual(text.trim(), "", `${language}${path}`);
      // A parameter that a translation leaves out would hide a figure.
      const expected = [...(english.get(path) ?? "").matchAll(/«\d»/g)].map(String).sort();
      assert.deepEqual([...text.matchAll(/«\d»/g)].map(String).sort(), expected, `${language}${path}`);
    }
    if (language !== "en") {
      const same = own.filter(([path, text]) => english.get(path) === text && /[a-z]{4}/i.test(text) && !/«/.test(text));
      assert.ok(same.length < 5, `${language} has English in ${same.map(([path]) => path).join(", ")}`);
    }
  }
});

test("sentences have the same values in all languages", () => {
  for (const [key, english] of Object.entries(MESSAGES.en.sentences)) {
    for (const language of LANGUAGES) {
      const own = (MESSAGES[language].sentences as Record<string, string>)[key] ?? "";
      assert.deepEqual(holes(own), holes(english), `${language} ${key}`);
    }
  }
});

test("every sentence of bpe is known here", (t) => {
  const sources = ["explain.rs", "persisted.rs", "rules.rs"].map((name) => join(WEB_FOLDER, "../crates/bpe/src/observe", name));
  if (!existsSync(join(WEB_FOLDER, "../crates"))) return t.skip("the command's source is not here");
  const text = sources.map((source) => readFileSync(source, "utf8").split("#[cfg(test)]")[0]).join("");
  const keys = [...text.matchAll(/"((?:inactive|idle|verdict|saved|larger|kept|disk|rules|trouble|bottleneck|memory)\.[a-z_]+|few_reads)"/g)].map((match) => match[1]!);
  assert.ok(keys.length >= 20, "they are still found");
  const known = Object.keys(MESSAGES.en.sentences);
  assert.deepEqual([...new Set(keys)].sort(), known.sort());
  // And what it rests on: each sentence's figures are named between its key and the next one.
  const bounds = known.map((key) => [key, text.indexOf(`"${key}"`)] as const).sort((a, b) => a[1] - b[1]);
  bounds.forEach(([key, start], i) => {
    const own = text.slice(start, bounds.slice(i + 1).find(([next]) => next.split(".")[0] !== "verdict" || !key.startsWith("verdict"))?.[1]);
    for (const hole of holes((MESSAGES.en.sentences as Record<string, string>)[key]!)) assert.ok(own.includes(`{${hole}}`), `${key} has ${hole}`);
  });
});

test("every part of a plan and every state of a step is known here", () => {
  for (const language of LANGUAGES) {
    const { parts, steps } = MESSAGES[language].switch;
    assert.deepEqual(Object.keys(parts).sort(), [...PLAN_PARTS].sort(), language);
    assert.deepEqual(Object.keys(steps).sort(), [...STEP_STATES].sort(), language);
  }
});

test("a sentence is filled by the units of its values", () => {
  const values = { a_percent: 87.46, b_us: 1250, c_ms_per_s: 2500, d_bytes: 2 ** 27, e_minutes: 0.2, f_per_s: 12345.6, path: "/mnt" };
  assert.equal(fill("{a_percent} {b_us} {c_ms_per_s} {d_bytes} {e_minutes} {f_per_s} {path} {unknown}", values),
    "87.5% 1.25 ms 2.5 s 128 MiB 1 min 12,346 /mnt {unknown}");
});

test("fixed words of the server are translated, also before a colon", () => {
  chosenLanguage.value = "ja";
  assert.deepEqual(saidText("Switching on: demo"), { text: "オンにしています: demo", translated: true });
  assert.deepEqual(saidText("Switching on: done"), { text: "オンにしています: 完了", translated: true });
  assert.deepEqual(saidText("bpe_path = /mnt: a"), { text: "bpe_path = /mnt: a", translated: false });
  chosenLanguage.value = null;
  assert.deepEqual(saidText("Switching on: demo"), { text: "Switching on: demo", translated: false });
});

test("why something was not kept is told in the page's language", (t) => {
  const crates = join(WEB_FOLDER, "../crates");
  if (!existsSync(crates)) return t.skip("the plugin's source is not here");
  const words = readFileSync(join(crates, "coherence/src/restart/proof.rs"), "utf8").match(/fn text\(self\)[\s\S]*?\n {4}\}/)![0];
  const reasons = [...words.matchAll(/"([^"]+)"/g)].map((match) => match[1]!);
  assert.ok(reasons.length >= 3, "they are still found");
  for (const language of ["ja", "zh-TW"] as const) {
    for (const why of reasons) assert.ok(MESSAGES[language].said[why], `${language} ${why}`);
  }
  chosenLanguage.value = "ja";
  assert.equal(fill("{file}: {why}", { file: "installed", why: reasons[0]! }), `installed: ${MESSAGES.ja.said[reasons[0]!]}`);
  chosenLanguage.value = null;
});

test("a sentence is translated, or left as the server wrote it", () => {
  const known = { text_key: "larger.room", level: "note" as const, values: { used_percent: 50 }, text: "English" };
  chosenLanguage.value = "ja";
  assert.match(sentenceText(known).text, /使用率は 50%/);
  assert.deepEqual(sentenceText({ ...known, values: {} }), { text: "English", translated: false });
  assert.deepEqual(sentenceText({ text_key: "newer", level: "note", values: {}, text: "As it is." }), { text: "As it is.", translated: false });
  chosenLanguage.value = null;
});
