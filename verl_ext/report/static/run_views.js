// What the pages of runs share: views by name, numbers, series of a metric, and charts that are drawn when in sight.
"use strict";

globalThis.runs = (() => {
  const { el } = report;
  // The palette of Okabe and Ito, changed where a colour vanishes on a dark or a light ground.
  const COLOURS = ["#2b7bba", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C7A00", "#888888"];
  const AXES = { step: "step", seconds: "seconds of training", rollouts: "rollouts generated" };

  const colour = (place) => COLOURS[place % COLOURS.length];

  // Plotly reads some tags and entities in its texts: names of others must have none.
  const plotText = (text) =>
    String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("%", "&#37;");

  function number(value) {
    if (value === null || value === undefined) return "–";
    if (Number.isInteger(value)) return value.toLocaleString("en");
    const size = Math.abs(value);
    if (size >= 1e5) return Math.round(value).toLocaleString("en");
    return size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  }

  const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

  // As `curves.smooth`.
  function smooth(values, weight) {
    let average = 0;
    let kept = 1;
    return values.map((value) => {
      if (value === null) return null;
      average = weight * average + (1 - weight) * value;
      kept *= weight;
      // Rounded, so that a constant stays one: plotly would zoom into the last bits.
      return Number((average / (1 - kept)).toPrecision(12));
    });
  }

  // [1, 2, 3, 7] as "1–3, 7".
  function ranges(steps, most = 8) {
    const found = [];
    for (const step of steps) {
      const last = found.at(-1);
      if (last && step === last[1] + 1) last[1] = step;
      else found.push([step, step]);
    }
    const texts = found.slice(0, most).map(([low, high]) => (low === high ? `${low}` : `${low}–${high}`));
    return texts.join(", ") + (found.length > most ? ", …" : "");
  }

  const groupOf = (index, metric) => Object.keys(index.groups).find((name) => index.groups[name].includes(metric));

  // The curves of a metric, one a run: [{name, place, x, y, smoothed}], only where both numbers are known.
  async function series(index, metric, axis, weight) {
    const values = (await report.load(`curves-${groupOf(index, metric)}`))[metric] ?? [];
    const several = index.runs ?? [index];
    return several.flatMap((run, place) => {
      const own = index.runs ? values[place] : values;
      const axisValues = run.axes[axis] ?? [];
      // In a live view the blocks may be of different moments.
      if (!own || axisValues.length === 0) return [];
      const kept = own.flatMap((value, row) => (value === null || (axisValues[row] ?? null) === null ? [] : [row]));
      const y = kept.map((row) => own[row]);
      return [{ name: run.name, place, x: kept.map((row) => axisValues[row]), y, smoothed: smooth(y, weight) }];
    });
  }

  function metricTraces(found, weight, axis) {
    const label = (one) => (found.length > 1 ? `${plotText(one.name)}<br>` : "");
    return found.flatMap((one) => [
      ...(weight > 0
        ? [
            {
              type: "scatter",
              mode: "lines",
              x: one.x,
              y: one.y,
              line: { color: colour(one.place), width: 1 },
              opacity: 0.3,
              hoverinfo: "skip",
              showlegend: false,
            },
          ]
        : []),
      {
        type: "scatter",
        mode: one.x.length <= 30 ? "lines+markers" : "lines",
        name: plotText(one.name),
        x: one.x,
        y: one.smoothed,
        customdata: one.y,
        line: { color: colour(one.place), width: 2 },
        marker: { size: 5 },
        hovertemplate: `${label(one)}${axis} %{x:,}<br>${weight > 0 ? "%{y:.5g} smoothed, %{customdata:.5g} measured" : "%{y:.5g}"}<extra></extra>`,
      },
    ]);
  }

  // Plotly draws a small constant at 0, between -1 and 1.
  function rangeOf(found) {
    const values = new Set(found.flatMap((one) => one.y));
    const [value] = values;
    return values.size === 1 && value > 0 ? { range: [0, 2 * value] } : {};
  }

  async function drawMetric(element, index, metric, { axis = "step", weight = 0, log = false, height = 230 } = {}) {
    const found = await series(index, metric, axis, weight);
    await report.chart(element, metricTraces(found, weight, axis), {
      height,
      showlegend: false,
      hovermode: "x",
      margin: { l: 58, r: 12, t: 8, b: 38 },
      xaxis: { title: { text: AXES[axis], standoff: 6 }, rangemode: "tozero", nticks: 7 },
      yaxis: {
        ...(log ? {} : rangeOf(found)),
        type: log ? "log" : "linear",
        automargin: true,
        nticks: 6,
        exponentformat: "e",
      },
    });
    element.dataset.ready = found.length;
  }

  // Calls `draw` of an element when it comes into sight, and again after `mark`.
  function whenSeen() {
    const waiting = new WeakMap();
    const observer = new IntersectionObserver(
      (entries) => {
        for (const { isIntersecting, target } of entries) {
          const draw = waiting.get(target);
          if (!isIntersecting || !draw) continue;
          waiting.delete(target);
          draw();
        }
      },
      { rootMargin: "200px" },
    );
    return {
      mark(element, draw) {
        waiting.set(element, draw);
        // Observing anew tells at once whether it is in sight.
        observer.unobserve(element);
        observer.observe(element);
      },
    };
  }

  // A table of few rows: all are elements.
  const plainTable = (id, head, rows) =>
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { id },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            head.map((text) => el("th", {}, text)),
          ),
        ),
        el(
          "tbody",
          {},
          rows.map((row) =>
            el(
              "tr",
              {},
              row.map((cell) => el("td", { class: typeof cell === "number" ? "number" : null }, shown(cell))),
            ),
          ),
        ),
      ),
    );
  const shown = (cell) => (typeof cell === "number" ? number(cell) : (cell ?? "–"));

  return {
    views: {},
    // Functions of the index that give a section of the first view, or null: a recipe's view pushes its own.
    overview: [],
    AXES,
    colour,
    plotText,
    number,
    percent,
    smooth,
    ranges,
    groupOf,
    series,
    drawMetric,
    whenSeen,
    plainTable,
  };
})();
