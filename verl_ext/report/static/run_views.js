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
  // Runs of one configuration have one colour.
  function placeOf(index, place) {
    const groups = (index.runs ?? []).map((run) => run.group);
    return new Set(groups).size < groups.length && new Set(groups).size > 1 ? groups[place] : place;
  }

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
      return [{ name: run.name, run: place, place: placeOf(index, place), x: kept.map((row) => axisValues[row]), y, smoothed: smooth(y, weight) }];
    });
  }

  // Where runs of one configuration have a mean, each of them is a thin line.
  function metricTraces(found, means, weight, axis) {
    const label = (one) => (found.length > 1 ? `${plotText(one.name)}<br>` : "");
    const isThin = (one) => means.some((mean) => mean.place === one.place);
    const traces = found.flatMap((one) => [
      ...(weight > 0 && !isThin(one)
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
        mode: one.x.length <= 30 && !isThin(one) ? "lines+markers" : "lines",
        name: plotText(one.name),
        x: one.x,
        y: one.smoothed,
        customdata: one.y,
        line: { color: colour(one.place), width: isThin(one) ? 1 : 2 },
        opacity: isThin(one) ? 0.6 : 1,
        marker: { size: 5 },
        hovertemplate: `${label(one)}${axis} %{x:,}<br>${weight > 0 ? "%{y:.5g} smoothed, %{customdata:.5g} measured" : "%{y:.5g}"}<extra></extra>`,
      },
    ]);
    return [...traces, ...means.map((one) => meanTrace(one, axis))];
  }

  const meanTrace = ({ name, place, number: runsOf, x, y }, axis) => ({
    type: "scatter",
    mode: "lines",
    name: `mean of ${plotText(name)}`,
    x,
    y,
    line: { color: colour(place), width: 3.5 },
    hovertemplate: `${plotText(name)}<br>${axis} %{x:,}<br>%{y:.5g} mean of ${runsOf}<extra></extra>`,
  });

  // Plotly draws a small constant at 0, between -1 and 1.
  function rangeOf(found) {
    const values = new Set(found.flatMap((one) => one.y));
    const [value] = values;
    return values.size === 1 && value > 0 ? { range: [0, 2 * value] } : {};
  }

  // Marks at the foot of a chart where the metric was NaN or infinite: red, or of several runs each in its colour, one
  // row above the other.
  function nullMarks(index, metrics, axis) {
    const found = (index.runs ?? [index])
      .map((run, place) => ({ run, place, steps: new Set(metrics.flatMap((metric) => (Object.hasOwn(run.nulls, metric) ? run.nulls[metric] : []))) }))
      .filter(({ steps }) => steps.size > 0);
    const height = Math.min(0.08, 0.4 / found.length);
    return found.flatMap(({ run, place, steps }, row) =>
      run.axes.step.flatMap((step, record) => {
        const x = run.axes[axis][record] ?? null;
        if (!steps.has(step) || x === null) return [];
        const color = index.runs ? colour(placeOf(index, place)) : "#D55E00";
        return [{ type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: row * height, y1: (row + 1) * height, line: { color, width: 2 } }];
      }),
    );
  }

  // Of the whole run: a curve that ends early is seen to do so.
  function reach(index, axis) {
    const ends = (index.runs ?? [index]).flatMap((run) => run.axes[axis] ?? []).filter((value) => value !== null);
    return ends.length ? [0, 1.02 * ends.reduce((most, value) => Math.max(most, value), 0) || 1] : undefined;
  }

  async function drawMetric(element, index, metric, options) {
    return drawMetrics(element, index, [metric], options);
  }

  // Several metrics of one run in a chart, or one metric of any number of runs.
  async function drawMetrics(element, index, metrics, { axis = "step", weight = 0, log = false, height = 230 } = {}) {
    const all = await Promise.all(metrics.map((metric) => series(index, metric, axis, weight)));
    const found =
      metrics.length === 1
        ? all[0]
        : all.flatMap((own, place) => own.map((one) => ({ ...one, place, name: shortName(metrics[place]) })));
    const marks = nullMarks(index, metrics, axis);
    const means = metrics.length === 1 ? seeds.meanCurves(index, found) : [];
    await report.chart(element, metricTraces(found, means, weight, axis), {
      height,
      showlegend: metrics.length > 1,
      legend: { orientation: "h", y: 1.2, font: { size: 11 } },
      hovermode: "x",
      shapes: marks,
      margin: { l: 58, r: 12, t: 8, b: 38 },
      xaxis: { title: { text: AXES[axis], standoff: 6 }, range: reach(index, axis), nticks: 7 },
      yaxis: {
        ...(log ? {} : rangeOf(found)),
        type: log ? "log" : "linear",
        automargin: true,
        nticks: 6,
        exponentformat: "e",
      },
    });
    element.dataset.ready = found.length;
    element.dataset.nulls = marks.length;
  }

  // "val-core/openai/gsm8k/acc/mean@32" as "openai/gsm8k": the name of a set may have slashes.
  const shortName = (metric) => metric.split("/").slice(1, -2).join("/") || metric;

  // What a metric means by a glossary; null without an entry.
  const meaning = (index, metric) => (Object.hasOwn(index.glossary, metric) ? index.glossary[metric] : null);

  // A metric's name with what it means as a tip.
  const explained = (index, metric) => {
    const other = index.verls_own.includes(metric) ? "one of verl's own metrics" : "no glossary describes it";
    return { tip: [metric, meaning(index, metric) ?? other] };
  };

  // A sentence in which the names of metrics have their meaning as a tip.
  const withMetrics = (index, text) =>
    text
      .split(/([^\s,]+)/u)
      .map((part) =>
        groupOf(index, part) !== undefined || meaning(index, part) !== null || index.verls_own.includes(part)
          ? el("code", explained(index, part), part)
          : part,
      );

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
        // Observing it again reports at once whether it is in sight.
        observer.unobserve(element);
        observer.observe(element);
      },
    };
  }

  function duration(seconds) {
    const whole = Math.round(seconds);
    const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
    if (days >= 2) return `${days} days ${hours % 24} h`;
    return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
  }

  // Roughly: "14 min", "3 h".
  function roughly(seconds) {
    const units = [
      [86400, "days"],
      [3600, "h"],
      [60, "min"],
      [1, "s"],
    ];
    const [size, name] = units.find(([one]) => seconds >= 1.5 * one) ?? units.at(-1);
    return `${Math.round(seconds / size)} ${name}`;
  }

  // With the zone: a page may be opened elsewhere than the run was started.
  function moment(seconds) {
    const offset = -new Date(1000 * seconds).getTimezoneOffset();
    const sign = offset < 0 ? "−" : "+";
    const zone = [Math.floor(Math.abs(offset) / 60), Math.abs(offset) % 60].map((part) => String(part).padStart(2, "0"));
    return `${new Date(1000 * seconds).toLocaleString("sv")} (UTC${sign}${zone.join(":")})`;
  }

  // Whether a run is at work, how far it came, and what ended it: [badge, class, sentence].
  function stateOf({ kind, finished, step, of, seconds_left: left, since, ended, error, host, read_at: read }) {
    const where = of ? `step ${number(step)} of ${number(of)}` : `step ${number(step)}`;
    const ago = ended ? `, ${roughly(Math.max(0, Date.now() / 1000 - ended))} ago` : "";
    const remaining = left === null ? "" : `, about ${roughly(left)} left`;
    const why = error ? `: ${error}` : "";
    const at = step ? `at ${where}` : "before the first step";
    const known = {
      starting: ["starting", "going", `starting for ${roughly(read - (since ?? read))}`],
      training: ["training", "going", `training ${where}${remaining}`],
      validating: ["validating", "going", `validating at ${where}${remaining}`],
      finished: ["finished", "done", `finished ${of && of !== step ? `at ${where}` : `after ${number(step)} steps`}${ago}`],
      failed: ["failed", "lost", `failed ${at}${ago}${why}`],
      interrupted: ["interrupted", "lost", `interrupted ${at}${ago}${why}; the same command resumes from its newest checkpoint`],
      dead: [
        "died",
        "lost",
        `ended without an error message ${at}, last seen ${ago.slice(2)}${host ? ` on ${host}` : ""}: its process is gone (killed, out of memory, or the machine)`,
      ],
    };
    return known[kind] ?? [finished ? "finished" : "not finished", finished ? "done" : "going", where];
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
    placeOf,
    series,
    drawMetric,
    drawMetrics,
    meaning,
    explained,
    withMetrics,
    whenSeen,
    plainTable,
    duration,
    moment,
    stateOf,
  };
})();
