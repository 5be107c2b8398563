// Sentences of `explain` in the language in force. The end of a value's name is its unit, as the server writes it too.

import type { Sentence } from "../api/types";
import { bytes, micros, number, percent } from "../format";
import { text } from "./text";

export function shownValue(name: string, value: number | string): string {
  if (typeof value === "string") return name === "why" ? saidText(value).text : value;
  if (name.endsWith("_percent")) return percent(value);
  if (name.endsWith("_us")) return micros(value);
  if (name.endsWith("_ms_per_s")) return micros(value * 1000);
  if (name.endsWith("_bytes")) return bytes(value);
  if (name.endsWith("_minutes")) return text.value.minutes(number(Math.ceil(value)));
  return number(Math.abs(value) >= 10 ? Math.round(value) : value);
}

export function fill(template: string, values: Sentence["values"]): string {
  return template.replace(/\{(\w+)\}/g, (hole, name: string) => {
    const value = values[name];
    return value === undefined ? hole : shownValue(name, value);
  });
}

/** The sentence translated, or the server's English where this page does not know it. */
export function sentenceText(sentence: Sentence): { text: string; translated: boolean } {
  const translations: Record<string, string> = text.value.sentences;
  const translation = translations[sentence.text_key];
  // A server of another version may bring other figures: then its own words are the right ones.
  const complete = translation?.match(/\{\w+\}/g)?.every((hole) => hole.slice(1, -1) in sentence.values) ?? true;
  return translation && complete ? { text: fill(translation, sentence.values), translated: true } : { text: sentence.text, translated: false };
}

/**
 * The server's fixed words, also where it adds something after a colon: `title: what has been done`. What it adds is translated
 * if it is fixed words too.
 */
export function saidText(said: string): { text: string; translated: boolean } {
  const words = text.value.said;
  const whole = words[said];
  if (whole !== undefined) return { text: whole, translated: true };
  const colon = said.indexOf(": ");
  const head = colon > 0 ? words[said.slice(0, colon)] : undefined;
  if (head === undefined) return { text: said, translated: false };
  return { text: `${head}: ${saidText(said.slice(colon + 2)).text}`, translated: true };
}
