import "./browser";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { bytes, exactSize, gain, micros, millis, number, parseSize, percent, visible } from "../../src/format";
import { chosenLanguage } from "../../src/state/preferences";

afterEach(() => {
  chosenLanguage.value = null;
});

test("sizes are binary", () => {
  assert.equal(bytes(0), "0 B");
  assert.equal(bytes(1023), "1,023 B");
  assert.equal(bytes(1024), "1 KiB");
  assert.equal(bytes(1.5 * 2 ** 30), "1.5 GiB");
  assert.equal(bytes(1024 * 1024 - 1), "1 MiB");
  assert.equal(bytes(null), "–");
});

test("latencies take the unit that fits", () => {
  assert.equal(micros(92.34), "92.3 µs");
  assert.equal(micros(1250), "1.25 ms");
  assert.equal(micros(2_500_000), "2.5 s");
  assert.equal(millis(0.5), "500 µs");
  assert.equal(micros(undefined), "–");
});

test("numbers are written as the language does", () => {
  assert.equal(number(21451.2), "21,451");
  assert.equal(number(6.957), "6.96");
  assert.equal(percent(97.94), "97.9%");
  assert.equal(gain(154.2), "+154%");
  assert.equal(gain(-3.2), "-3%");
  assert.equal(gain(0), "0%");
  for (const language of ["ja", "zh-TW"] as const) {
    chosenLanguage.value = language;
    assert.equal(number(21451.2), "21,451");
    assert.equal(bytes(2 ** 31), "2 GiB");
  }
});

test("sizes are read as an administrator writes them", () => {
  assert.equal(parseSize("100G"), 100 * 2 ** 30);
  assert.equal(parseSize(" 1.5 GiB "), 1.5 * 2 ** 30);
  assert.equal(parseSize("512 mb"), 512 * 2 ** 20);
  assert.equal(parseSize("4096"), 4096);
  for (const bad of ["", "G", "-1G", "1,5G", "10X", "1G2"]) assert.equal(parseSize(bad), null, bad);
});

test("a size is written without losing a byte", () => {
  for (const size of [0, 1, 1000, 1024, 1536 * 2 ** 20, 2 ** 30, 2 ** 50]) assert.equal(parseSize(exactSize(size)), size);
  assert.equal(exactSize(2 ** 30), "1G");
});

test("text from outside shows what cannot be seen", () => {
  assert.equal(visible("shop.o\u202e\u200bx\u001b[2K"), "shop.o\\u{202e}\\u{200b}x\\u{1b}[2K");
  assert.equal(visible("\u{e0041}\ufeff\u00ad\u3164\u2028"), "\\u{e0041}\\u{feff}\\u{ad}\\u{3164}\\u{2028}");
  assert.equal(visible("東京 müller नमस्ते 🦭\n"), "東京 müller नमस्ते 🦭\n");
});
