"use strict";
(() => {
  const { labels, axes, charts } = JSON.parse(document.getElementById("data").textContent);
  const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const figures = [...document.querySelectorAll("figure[data-chart]")];
  const axis = () => Number(document.querySelector("input[name=axis]:checked").value);
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
  const shown = new WeakMap();
  const whole = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

  // Points of one run by an axis, in order; a point whose place is not known is left out.
  function points(curve, number) {
    const places = curve.axes[number];
    const found = curve.values.map((y, i) => [places[i], y]).filter(([x]) => x !== null);
    return [found.map(([x]) => x), found.map(([, y]) => y)];
  }

  function draw(figure) {
    shown.get(figure)?.destroy();
    const chart = charts[Number(figure.dataset.chart)];
    const select = figure.querySelector("select");
    const variant = chart.variants[select ? Number(select.value) : 0];
    const number = axis();
    const plot = figure.querySelector(".plot");
    const series = variant.curves.map((curve, run) => ({ run, data: points(curve, number) })).filter((s) => s.data[0].length);
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `${variant.label} by ${axes[number]}: ` + (series.map((s) => `${labels[s.run]} ends at ${s.data[1].at(-1).toFixed(variant.digits)}`).join(", ") || "no points"));
    if (!series.length) {
      plot.textContent = `no run has ${variant.label} by ${axes[number]}`;
      shown.delete(figure);
      return;
    }
    plot.textContent = "";
    const ink = colour("--soft"), line = colour("--line");
    const font = "12px system-ui, sans-serif";
    const frame = { stroke: ink, font, labelFont: font, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const options = {
      width: Math.max(plot.clientWidth, 200),
      height: 260,
      scales: { x: { time: false } },
      axes: [
        { ...frame, label: axes[number], ...(number < 2 && { incrs: whole }), values: (_, ticks) => ticks.map((t) => short.format(t)) },
        { ...frame, label: variant.label, size: 58, values: (_, ticks) => ticks.map((t) => String(Number(t.toPrecision(6)))) },
      ],
      series: [
        { label: axes[number], value: (_, x) => (x === null ? "" : short.format(x)) },
        ...series.map((s) => ({
          label: labels[s.run],
          stroke: colour(`--run-${s.run % 8}`),
          width: 2,
          dash: dashes[Math.floor(s.run / 8) % dashes.length],
          spanGaps: true,
          points: { show: s.data[0].length <= 50, size: 5 },
          value: (_, y) => (y === null ? "" : y.toFixed(variant.digits)),
        })),
      ],
    };
    shown.set(figure, new uPlot(options, uPlot.join(series.map((s) => s.data)), plot));
  }

  const all = () => figures.forEach(draw);
  document.querySelectorAll("input[name=axis]").forEach((input) => input.addEventListener("change", all));
  figures.forEach((figure) => figure.querySelector("select")?.addEventListener("change", () => draw(figure)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  const resized = new ResizeObserver((entries) => entries.forEach(({ target, contentRect }) => {
    const plot = shown.get(target.parentElement);
    if (plot && contentRect.width && Math.abs(plot.width - contentRect.width) >= 1) plot.setSize({ width: contentRect.width, height: 260 });
  }));
  all();
  figures.forEach((figure) => resized.observe(figure.querySelector(".plot")));
})();
