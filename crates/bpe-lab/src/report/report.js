// Shows the numbers under the pointer. The charts are complete without it.
"use strict";
for (const figure of document.querySelectorAll("figure.chart")) {
  const series = JSON.parse(figure.dataset.series);
  const end = Number(figure.dataset.end);
  const left = Number(figure.dataset.left);
  const width = 1 - left - Number(figure.dataset.right);
  const area = figure.querySelector(".area");
  const cursor = figure.querySelector(".cursor");
  const readout = figure.querySelector(".readout");

  const hide = () => { cursor.hidden = readout.hidden = true; };
  const show = (event) => {
    const box = area.getBoundingClientRect();
    const inside = ((event.clientX - box.left) / box.width - left) / width;
    const time = Math.min(1, Math.max(0, inside)) * end;
    const share = left + time / end * width;
    const lines = [`${Math.round(time)} s`];
    for (const one of series) {
      if (!one.points.length) continue;
      const near = one.points.reduce((best, point) =>
        Math.abs(point[0] - time) < Math.abs(best[0] - time) ? point : best);
      if (Math.abs(near[0] - time) > 1.5) continue;
      const digits = near[1] < 100 ? 1 : 0;
      const number = near[1].toLocaleString("en", { maximumFractionDigits: digits });
      lines.push(`${one.name.split(":")[0]}: ${number} ${figure.dataset.unit}`);
    }
    readout.textContent = lines.join("\n");
    cursor.hidden = readout.hidden = false;
    cursor.style.left = `${share * 100}%`;
    const right = share > 0.5;
    readout.style.left = right ? "auto" : `calc(${share * 100}% + 8px)`;
    readout.style.right = right ? `calc(${(1 - share) * 100}% + 8px)` : "auto";
  };
  area.addEventListener("pointermove", show);
  area.addEventListener("pointerdown", show);
  area.addEventListener("pointerleave", hide);
}
