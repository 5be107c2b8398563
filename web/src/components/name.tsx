// A name or path from outside: it cannot change how the text around it reads.

import { visible } from "../format";

export function Name(props: { text: string }) {
  return <bdi>{visible(props.text)}</bdi>;
}
