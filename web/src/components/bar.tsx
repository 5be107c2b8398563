/** A bar of one share, with its number beside it. `value` in percent. */
export function Bar(props: { value: number; tone: string; children?: preact.ComponentChildren }) {
  const value = Math.max(0, Math.min(100, props.value || 0));
  return (
    <span class="bar">
      <span class="bar-track" aria-hidden="true">
        <span class={`bar-fill ${props.tone}`} style={{ width: `${value}%` }} />
      </span>
      <span class="bar-text">{props.children}</span>
    </span>
  );
}
