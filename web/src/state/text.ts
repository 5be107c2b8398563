// The messages of the language in force.

import { computed } from "@preact/signals";
import { MESSAGES } from "../messages";
import { language } from "./preferences";

export const text = computed(() => MESSAGES[language.value]);
