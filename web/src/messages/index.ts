// The page's messages. English is the reference: the type system holds the other languages to its keys and parameters.

import { en } from "./en";
import { ja } from "./ja";
import { zhTW } from "./zh-TW";

export const LANGUAGES = ["en", "ja", "zh-TW"] as const;
export type Language = (typeof LANGUAGES)[number];

/** How the languages call themselves. */
export const LANGUAGE_NAMES: Record<Language, string> = { en: "English", ja: "日本語", "zh-TW": "繁體中文" };

type Widened<T> = T extends string ? string
  : T extends (...parameters: infer P) => string ? (...parameters: P) => string
  : { [K in keyof T]: Widened<T[K]> };
export type Messages = Widened<typeof en>;

export const MESSAGES: Record<Language, Messages> = { en, ja, "zh-TW": zhTW };

/** The first of the browser's languages that there is; Chinese only where it is written in traditional characters. */
export function languageOf(wanted: readonly string[]): Language {
  for (const tag of wanted) {
    const [primary, ...rest] = tag.toLowerCase().split("-");
    if (primary === "en") return "en";
    if (primary === "ja") return "ja";
    if (primary === "zh" && rest.some((part) => ["tw", "hk", "mo", "hant"].includes(part))) return "zh-TW";
  }
  return "en";
}
