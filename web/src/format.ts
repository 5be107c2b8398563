// Numbers, sizes and times as the language writes them. Sizes are binary, as the server's variables are.

import { language } from "./state/preferences";

const formats = new Map<string, Intl.NumberFormat>();

function numbers(options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const key = language.value + JSON.stringify(options);
  let format = formats.get(key);
  if (!format) {
    format = new Intl.NumberFormat(language.value, options);
    formats.set(key, format);
  }
  return format;
}

/** Three significant digits below a thousand, whole numbers above. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const digits = Number.isInteger(value) || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return numbers({ maximumFractionDigits: digits }).format(value);
}

/** 12,345 as 12.3K, in the language's own way. */
export function compact(value: number): string {
  return numbers({ notation: "compact", maximumFractionDigits: 1 }).format(value);
}

export function percent(value: number | null | undefined, digits = 1): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return numbers({ style: "percent", maximumFractionDigits: digits }).format(value / 100);
}

/** With its sign, whole: +469 %. */
export function gain(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return numbers({ style: "percent", maximumFractionDigits: 0, signDisplay: "exceptZero" }).format(value / 100);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1023.5 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return `${numbers({ maximumFractionDigits: digits }).format(Math.sign(value) * size)} ${UNITS[unit]}`;
}

export const bytesPerSecond = (value: number | null | undefined) => `${bytes(value)}/s`;

/** Microseconds, shown as ms from a thousand on and as s from a million on. */
export function micros(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value >= 1e6) return `${number(value / 1e6)} s`;
  if (value >= 1000) return `${number(value / 1000)} ms`;
  return `${number(value)} µs`;
}

export const millis = (value: number | null | undefined) =>
  micros(value === null || value === undefined ? null : value * 1000);

export function clock(ms: number): string {
  return new Intl.DateTimeFormat(language.value, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }).format(ms);
}

export function dateAndClock(ms: number): string {
  return new Intl.DateTimeFormat(language.value, { dateStyle: "medium", timeStyle: "medium" }).format(ms);
}

/** A size as an administrator writes it: 100G, 512 MiB, 1073741824. In bytes; null if it is none. */
export function parseSize(text: string): number | null {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?\s*$/i.exec(text);
  if (!match) return null;
  const power = ["", "K", "M", "G", "T", "P"].indexOf((match[2] ?? "").toUpperCase());
  return Math.round(Number(match[1]) * 1024 ** power);
}

/** The shortest exact way to write a size: 1G, 1536M, 1000. */
export function exactSize(value: number): string {
  const letters = ["", "K", "M", "G", "T"];
  let power = 0;
  let left = value;
  while (left !== 0 && left % 1024 === 0 && power < letters.length - 1) {
    left /= 1024;
    power += 1;
  }
  return `${left}${letters[power]}`;
}

/** A text from outside: what cannot be seen, or changes how the rest reads, is written as an escape. Line feeds stay: a page shows them as spaces. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (one) => `\\u{${one.codePointAt(0)!.toString(16)}}`);
}

const HIDDEN = /(?!\n)[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;
