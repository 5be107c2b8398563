/** The last values as a small line. The number stands beside it, so it is hidden from screen readers. */
export function Sparkline(props: { values: (number | null)[]; tone: string }) {
  const values = props.values;
  const known = values.filter((value): value is number => value !== null);
  if (known.length < 2) return <svg class="sparkline" viewBox="0 0 100 24" aria-hidden="true" />;
  const top = Math.max(...known) || 1;
  let path = "";
  let pen = false;
  values.forEach((value, i) => {
    if (value === null) {
      pen = false;
      return;
    }
    const x = ((i / (values.length - 1)) * 100).toFixed(1);
    const y = (22.5 - (value / top) * 21).toFixed(1);
    path += `${pen ? "L" : "M"}${x} ${y}`;
    pen = true;
  });
  return (
    <svg class={`sparkline ${props.tone}`} viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
      <path d={path} fill="none" vector-effect="non-scaling-stroke" />
    </svg>
  );
}
