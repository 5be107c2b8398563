import type { State } from "../api/types";
import { text } from "../state/text";

const TONES: Record<State | "unreachable", string> = {
  active: "good",
  bypass: "warn",
  disabled: "plain",
  passive: "warn",
  failed: "bad",
  "not installed": "plain",
  unreachable: "bad",
};

/** A state in a word. The colour only repeats what the word says. */
export function StateBadge(props: { state: State | "unreachable" }) {
  return <span class={`badge ${TONES[props.state] ?? "plain"}`} data-state={props.state}>{text.value.states[props.state] ?? props.state}</span>;
}
