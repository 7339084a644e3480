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
        xaxis: { title: { text: "influence score (end bins: all beyond)" } },
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
        // Filled bands would reverse it.
        legend: { orientation: "h", y: 1.15, traceorder: "normal" },
        margin: { l: 64, r: 12, t: 8, b: 38 },
        xaxis: { title: { text: "step (click one to see its samples)" } },
        yaxis: { title: { text: "score" } },
      },
      (point) => change({ step: point.x }),
    );

  // ------------------------------ samples ------------------------------

  const LISTS = { highest: "highest", lowest: "lowest", failed_high: "failed_high", passed_low: "passed_low" };
  const titleOf = (name, [low, high]) =>
    ({
      highest: "highest scores",
      lowest: "lowest scores",
      failed_high: `reward ${number(low)}, score above 0`,
      passed_low: `reward ${number(high)}, score below 0`,
    })[name];

  function promptLink(row, index) {
    const prompt = row.index;
    if (prompt === undefined) return "–";
    const view = index.views.includes("curriculum") ? "curriculum" : index.has_samples ? "samples" : null;
    const name = el("code", {}, String(prompt));
    return view ? report.link({ view, prompt }, {}, name) : name;
  }

  const rowOf = (row, index, hasText) => [
    row.score,
    row.reward,
    row.advantage,
    row.weight,
    row.step,
    promptLink(row, index),
    ...(hasText
      ? [
          row.response === undefined
            ? el("span", { class: "note" }, "not recorded")
            : el(
                "button",
                { class: "plain response", "data-key": row.key, onclick: () => change({ sample: row.key }, { replace: true }) },
                row.response.trim().slice(0, 300) || "(empty)",
              ),
        ]
      : [el("code", { tip: [String(row.key)] }, String(row.key ?? "–").slice(-14))]),
  ];

  const samples = (id, title, rows, index, hasText) =>
    el(
      "section",
      {},
      el("h2", {}, title),
      rows.length
        ? runs.plainTable(
            id,
            ["score", "reward", "advantage", "weight", "step", "prompt", hasText ? "response" : "rollout"],
            rows.map((row) => rowOf(row, index, hasText)),
          )
        : el("p", { class: "note", id }, "None."),
    );

  function detail(row, index) {
    if (row === undefined) return "";
    return el(
      "section",
      { id: "sample" },
      el(
        "h2",
        {},
        `Score ${number(row.score)}, reward ${number(row.reward)}, step ${row.step}, prompt `,
        promptLink(row, index),
        " ",
        el("button", { onclick: () => change({ sample: null }, { replace: true }) }, "×"),
      ),
      report.clamped(row.response ?? "", { id: "response" }),
      row.prompt ? el("details", {}, el("summary", {}, "prompt"), report.clamped(row.prompt)) : "",
    );
  }

  runs.views.influence = {
    title: "influence",
    draw: async (params, index, isWanted, isShown) => {
      const data = await load("influence");
      if (!isWanted()) return;
      const own = params.step === undefined ? data : data.by_step[params.step];
      if (own === undefined) throw new Error(`no influence score was recorded at step ${params.step}`);
      const only = params.only in LISTS && own[params.only] ? params.only : null;
      const [histogram, bands] = ["scores", "bands"].map((id) => el("div", { class: "chart", id }));
      const where = params.step === undefined ? "of the run" : `of step ${params.step}`;
      const names = Object.keys(LISTS).filter((name) => data.ends[0] !== null || !name.includes("_"));
      const row = Object.keys(LISTS)
        .flatMap((name) => own[name] ?? [])
        .find((one) => one.key === params.sample);
      const top = isShown ? window.scrollY : 0;
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
          el(
            "div",
            { class: "bar" },
            el(
              "span",
              { class: "choices", role: "group", "aria-label": "samples" },
              el("button", { "data-only": "", "aria-pressed": String(only === null), onclick: () => change({ only: null }) }, "both ends"),
              names.map((name) =>
                el(
                  "button",
                  { "data-only": name, "aria-pressed": String(only === name), onclick: () => change({ only: name }) },
                  titleOf(name, data.ends),
                ),
              ),
            ),
            params.step === undefined
              ? ""
              : el("button", { id: "all-steps", onclick: () => change({ step: null }) }, `step ${params.step} ×`),
          ),
          data.has_text
            ? ""
            : el("p", { class: "note" }, "Only keys and numbers of the rollouts were recorded: tracin.record_texts=0."),
          detail(row, index),
          (only ? [only] : ["highest", "lowest"]).map((name) =>
            samples(name, `${titleOf(name, data.ends)} ${where}`, own[name], index, data.has_text),
          ),
        ),
      );
      window.scrollTo(0, top);
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
        {
          keys: ["Escape"],
          text: "both ends of the whole run",
          run: () => change({ step: null, only: null, sample: null }, { replace: true }),
        },
      ];
    },
  };
})();
