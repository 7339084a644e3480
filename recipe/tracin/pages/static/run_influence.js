// TracIn: how scores are distributed by reward, how that changed, and which samples are at both ends.
"use strict";

(() => {
  const { el, load, change, main } = report;
  const { number } = runs;

  const drawHistogram = (element, { edges, classes, counts }) =>
    report.chart(
      element,
      classes.map((name, place) => ({
        type: "bar",
        name,
        x: edges.slice(1).map((edge, bin) => (edge + edges[bin]) / 2),
        width: edges.slice(1).map((edge, bin) => edge - edges[bin]),
        y: counts[place],
        opacity: 0.65,
        marker: { color: runs.colour(place), line: { width: 0 } },
        customdata: edges.slice(1).map((edge, bin) => {
          const low = bin === 0 ? "below" : number(edges[bin]);
          return bin === edges.length - 2 ? `above ${low}` : `${low} to ${number(edge)}`;
        }),
        hovertemplate: `score %{customdata}: %{y:,} samples, ${name}<extra></extra>`,
      })),
      {
        height: 280,
        barmode: "overlay",
        legend: { orientation: "h", y: 1.14 },
        margin: { l: 64, r: 12, t: 8, b: 40 },
        xaxis: { title: { text: "influence score (the end bins hold all beyond them)" } },
        yaxis: { title: { text: "samples" }, type: "log" },
      },
    );

  const drawBands = (element, { steps, classes, bands }) =>
    report.chart(
      element,
      classes.flatMap((name, place) => {
        const [low, middle, high] = bands[place];
        const edge = (values, fill) => ({
          type: "scatter",
          mode: "lines",
          x: steps,
          y: values,
          line: { width: 0 },
          fill,
          fillcolor: `${runs.colour(place)}33`,
          hoverinfo: "skip",
          showlegend: false,
        });
        return [
          edge(low, "none"),
          edge(high, "tonexty"),
          {
            type: "scatter",
            mode: steps.length <= 40 ? "lines+markers" : "lines",
            name,
            x: steps,
            y: middle,
            customdata: middle.map((_, step) => [low[step], high[step]]),
            line: { color: runs.colour(place), width: 2 },
            hovertemplate: `step %{x}: median %{y:.3g}, 5–95 %: %{customdata[0]:.3g} to %{customdata[1]:.3g}, ${name}<extra></extra>`,
          },
        ];
      }),
      {
        height: 260,
        legend: { orientation: "h", y: 1.15 },
        margin: { l: 64, r: 12, t: 8, b: 38 },
        xaxis: { title: { text: "step (click one to see its samples)" } },
        yaxis: { title: { text: "score" } },
      },
      (point) => change({ step: point.x }),
    );

  const samples = (id, title, rows, hasText) =>
    el(
      "section",
      {},
      el("h2", {}, title),
      runs.plainTable(
        id,
        ["score", "reward", "advantage", "weight", "step", "prompt", "rollout", ...(hasText ? ["text"] : [])],
        rows.map((row) => [
          row.score,
          row.reward,
          row.advantage,
          row.weight,
          row.step,
          el("code", {}, String(row.index ?? "–")),
          el("code", { tip: [String(row.key)] }, String(row.key ?? "–").slice(-14)),
          ...(hasText
            ? [el("details", {}, el("summary", {}, (row.text ?? "").slice(0, 40)), el("pre", {}, row.text ?? ""))]
            : []),
        ]),
      ),
    );

  runs.views.influence = {
    title: "influence",
    draw: async (params, index, isWanted) => {
      const data = await load("influence");
      if (!isWanted()) return;
      const own = params.step === undefined ? data : data.by_step[params.step];
      if (own === undefined) throw new Error(`no influence score was recorded at step ${params.step}`);
      const [histogram, bands] = ["scores", "bands"].map((id) => el("div", { class: "chart", id }));
      const where = params.step === undefined ? "of the run" : `of step ${params.step}`;
      main.className = "two";
      main.replaceChildren(
        el(
          "div",
          { class: "side" },
          el(
            "p",
            { class: "facts" },
            `${number(data.num)} scored samples. A positive score: a step along the sample's gradient lowers the loss of the validation set.`,
          ),
          el("section", {}, el("h2", {}, "Scores by reward"), histogram),
          el("section", {}, el("h2", {}, "Over time: median, and 5 to 95 %"), bands),
        ),
        el(
          "div",
          { class: "side" },
          params.step === undefined
            ? ""
            : el("button", { id: "all-steps", onclick: () => change({ step: null }) }, `step ${params.step} ×`),
          data.has_text
            ? ""
            : el("p", { class: "note" }, "influence.jsonl has keys and numbers of the rollouts, no texts."),
          samples("highest", `Highest ${where}`, own.highest, data.has_text),
          samples("lowest", `Lowest ${where}`, own.lowest, data.has_text),
        ),
      );
      await drawHistogram(histogram, data);
      if (isWanted()) await drawBands(bands, data);
    },
    keys: () => {
      const by = (offset) => async () => {
        const { steps } = await load("influence");
        const now = steps.indexOf(Number(report.address().step));
        const next = now < 0 ? (offset > 0 ? steps[0] : steps.at(-1)) : steps[now + offset];
        if (next !== undefined) change({ step: next }, { replace: true });
      };
      return [
        { keys: ["j", "ArrowRight"], text: "next step's samples", run: by(1) },
        { keys: ["k", "ArrowLeft"], text: "samples of the step before", run: by(-1) },
        { keys: ["Escape"], text: "samples of the whole run", run: () => change({ step: null }, { replace: true }) },
      ];
    },
  };
})();
