// Fast DAPO's charts: pass rates of screenings over time, accuracy over rollouts, where the rollouts went; one prompt.
"use strict";

globalThis.curriculum = (() => {
  const { el } = report;
  const { number } = runs;
  const ORANGE = [217, 119, 6];
  const BLUE = [43, 123, 186];

  // From never passed, orange, over grey to always passed, blue.
  function passColour(share) {
    const end = share < 0.5 ? ORANGE : BLUE;
    const far = Math.abs(2 * share - 1) ** 1.5;
    return `rgb(${end.map((part) => Math.round(150 + far * (part - 150))).join(",")})`;
  }

  const drawHistograms = (element, { n, windows, counts }) => {
    const sums = windows.map((_, place) => counts.reduce((sum, row) => sum + row[place], 0));
    const names = windows.map(([low, high]) => (low === high ? `step ${low}` : `steps ${low}–${high}`));
    return report.chart(
      element,
      counts.map((row, k) => ({
        type: "bar",
        name: `${k} of ${n}`,
        x: windows.map(([low, high]) => (low + high) / 2),
        width: windows.map(([low, high]) => high - low + 1),
        y: row.map((count, place) => (sums[place] ? count / sums[place] : 0)),
        marker: { color: passColour(k / n), line: { width: 0 } },
        customdata: row.map((count, place) => [count, names[place]]),
        hovertemplate: `%{customdata[1]}: %{customdata[0]:,} prompts passed ${k} of ${n} (%{y:.1%})<extra></extra>`,
      })),
      {
        height: 260,
        barmode: "stack",
        legend: { traceorder: "reversed", title: { text: "passes" }, font: { size: 11 } },
        margin: { l: 58, r: 12, t: 8, b: 38 },
        xaxis: { title: { text: "step" } },
        yaxis: { title: { text: "share of screened prompts" }, tickformat: ".0%", range: [0, 1] },
      },
    );
  };

  const drawAccuracy = (element, points) =>
    report.chart(
      element,
      [
        {
          type: "scatter",
          mode: "lines+markers",
          x: points.map(([rollouts]) => rollouts),
          y: points.map(([, accuracy]) => accuracy),
          customdata: points.map(([, , step]) => step),
          line: { color: runs.colour(0), width: 2 },
          hovertemplate: "%{x:,} rollouts, step %{customdata}: %{y:.3f}<extra></extra>",
        },
      ],
      {
        height: 240,
        margin: { l: 58, r: 12, t: 8, b: 38 },
        xaxis: { title: { text: "rollouts generated" }, rangemode: "tozero" },
        yaxis: { title: { text: "validation accuracy" } },
      },
    );

  const drawFlow = (element, flow) =>
    report.chart(
      element,
      Object.entries(flow.counts)
        .filter(([, values]) => values.some(Boolean))
        .map(([name, values], place) => ({
          type: "scatter",
          mode: "lines",
          name,
          stackgroup: "fates",
          x: flow.steps,
          y: values,
          line: { width: 0.5, color: runs.colour(place) },
          hovertemplate: `${name}: %{y:,}<extra></extra>`,
        })),
      {
        height: 240,
        hovermode: "x unified",
        legend: { orientation: "h", y: 1.15 },
        margin: { l: 64, r: 12, t: 8, b: 38 },
        xaxis: { title: { text: "step" } },
        yaxis: { title: { text: "rollouts so far" }, rangemode: "tozero" },
      },
    );

  // One prompt's pass rates; triangles where it was trained on.
  function drawHistory(chart, names, events) {
    const trained = names.indexOf("trained");
    const rated = events.filter(([, , samples]) => samples);
    const symbols = ["circle", "diamond"];
    return report.chart(
      chart,
      [
        {
          type: "scatter",
          mode: "lines+markers",
          x: rated.map(([step]) => step),
          y: rated.map(([, , samples, passes]) => passes / samples),
          marker: {
            size: 9,
            symbol: rated.map(([, kind]) => symbols[kind]),
            color: rated.map(([, , samples, passes]) => passColour(passes / samples)),
            line: { width: 1, color: "#888" },
          },
          line: { color: "#888", width: 1, dash: "dot" },
          text: rated.map(([, kind, samples, passes]) => `${names[kind]}: ${number(passes)} of ${samples}`),
          hovertemplate: "step %{x}, %{text}<extra></extra>",
        },
        {
          type: "scatter",
          mode: "markers",
          x: events.filter(([, kind]) => kind === trained).map(([step]) => step),
          y: events.filter(([, kind]) => kind === trained).map(() => -0.06),
          marker: { symbol: "triangle-up", size: 10, color: runs.colour(2) },
          hovertemplate: "step %{x}: trained on<extra></extra>",
        },
      ],
      {
        height: 220,
        showlegend: false,
        margin: { l: 58, r: 12, t: 8, b: 38 },
        xaxis: { title: { text: "step (▲ trained on)" } },
        yaxis: { title: { text: "pass rate" }, range: [-0.12, 1.05], tickformat: ".0%" },
      },
    );
  }

  const absent = (element, text) => element.replaceChildren(el("p", { class: "note" }, text));

  async function drawCharts(parts, data, isWanted) {
    if (data.histograms) await drawHistograms(parts.histograms, data.histograms);
    else absent(parts.histograms, "No screening is counted in the metrics.");
    if (!isWanted()) return;
    if (data.accuracy.length) await drawAccuracy(parts.accuracy, data.accuracy);
    else absent(parts.accuracy, "There was no validation.");
    if (!isWanted()) return;
    if (data.flow.steps.length) await drawFlow(parts.flow, data.flow);
    else absent(parts.flow, "The metrics do not count what became of rollouts.");
  }

  return { drawCharts, drawHistory, absent };
})();
