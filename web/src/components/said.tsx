// What the server says in words of its own. Fixed words are translated; the rest stays English, and is marked as such.

import { visible } from "../format";
import { saidText } from "../state/sentence";

export function Said(props: { text: string | null | undefined; class?: string }) {
  if (!props.text) return null;
  const said = saidText(props.text);
  return <span class={props.class} lang={said.translated ? undefined : "en"}><bdi>{visible(said.text)}</bdi></span>;
}
