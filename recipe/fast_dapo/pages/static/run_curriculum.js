// Fast DAPO: pass rates of screenings over time, accuracy and rollouts, and one prompt's history.
"use strict";

(() => {
  const { el, load, change, main } = report;
  const { number, percent } = runs;
  const PROMPT = { name: 0, screenings: 1, rollouts: 2, rate: 3, last: 4, trained: 5, step: 6 };
  const ORANGE = [217, 119, 6];
  const BLUE = [43, 123, 186];
  let parts = null;

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

  // ------------------------------ prompts ------------------------------

  function choose(data, params) {
    const wanted = (params.search ?? "").toLowerCase();
    const rows = data.prompts.filter((row) => row[PROMPT.name].toLowerCase().includes(wanted));
    if (!params.sort) return rows;
    const [key, sign] = params.sort.startsWith("-") ? [params.sort.slice(1), -1] : [params.sort, 1];
    const column = PROMPT[key] ?? PROMPT.step;
    return rows.toSorted(
      (a, b) =>
        (a[column] === null) - (b[column] === null) ||
        sign * (a[column] < b[column] ? -1 : a[column] > b[column] ? 1 : 0),
    );
  }

  async function drawPrompt(element, data, name, isWanted) {
    const place = data.prompts.findIndex((row) => row[PROMPT.name] === name);
    if (place < 0)
      return element.replaceChildren(
        el("p", { class: "note error" }, `there is no prompt ${name} in this run's records`),
      );
    const events = (await load(`prompts-${Math.floor(place / data.shard)}`))[name];
    if (!isWanted()) return undefined;
    const chart = el("div", { class: "chart", id: "prompt-chart" });
    element.replaceChildren(
      el("h2", {}, "Prompt ", el("code", {}, name)),
      chart,
      runs.plainTable(
        "history",
        ["step", "event", "rollouts", "passes", "pass rate"],
        events.map(([step, kind, samples, passes]) => [
          step,
          data.events[kind],
          samples || "",
          samples ? number(passes) : "",
          samples ? percent(passes / samples) : "",
        ]),
      ),
    );
    const trained = data.events.indexOf("trained");
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
          text: rated.map(([, kind, samples, passes]) => `${data.events[kind]}: ${number(passes)} of ${samples}`),
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

  function build() {
    const state = { rows: [] };
    const table = report.table({
      label: "Prompts",
      columns: [
        { name: "prompt", width: "minmax(5rem, 1fr)", sort: "name" },
        { name: "screenings", width: "5.6rem", sort: "screenings" },
        { name: "rollouts", width: "4.2rem", sort: "rollouts" },
        { name: "pass rate", width: "4.6rem", sort: "rate", tip: ["of all its rollouts"] },
        { name: "last", width: "3.4rem", sort: "last", tip: ["pass rate of the last screening"] },
        { name: "trained", width: "3.8rem", sort: "trained", tip: ["times trained on"] },
        { name: "last step", width: "4.6rem", sort: "step" },
      ],
      sort: null,
      onsort: (sort) => change({ sort }, { replace: true }),
      cells: (place) => {
        const row = state.rows[place];
        const rate = (value) => (value === null ? "–" : percent(value));
        return [
          el("code", {}, row[PROMPT.name]),
          String(row[PROMPT.screenings]),
          String(row[PROMPT.rollouts]),
          rate(row[PROMPT.rate]),
          rate(row[PROMPT.last]),
          String(row[PROMPT.trained]),
          String(row[PROMPT.step]),
        ];
      },
      open: (place) => change({ prompt: state.rows[place][PROMPT.name] }, { replace: true }),
    });
    const search = el("input", {
      name: "search",
      placeholder: "search prompts",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => change({ search: search.value }, { replace: true }),
    });
    const [histograms, accuracy, flow] = ["histograms", "accuracy", "flow"].map((id) =>
      el("div", { class: "chart", id }),
    );
    const found = el("span", { class: "found", role: "status" });
    const detail = el("div", { id: "prompt" });
    const section = (title, ...inner) => el("section", {}, el("h2", {}, title), inner);
    main.className = "two";
    main.replaceChildren(
      el(
        "div",
        { class: "side" },
        section("Prompts", el("div", { class: "bar" }, search, found), el("div", { class: "short" }, table.element)),
        detail,
      ),
      el(
        "div",
        { class: "side" },
        section("Pass rates of the screened prompts", histograms),
        section("Accuracy against rollouts", accuracy),
        section("Where the rollouts went", flow),
      ),
    );
    return { state, table, search, histograms, accuracy, flow, found, detail };
  }

  const absent = (element, text) => element.replaceChildren(el("p", { class: "note" }, text));

  async function drawCharts(data, isWanted) {
    if (data.histograms) await drawHistograms(parts.histograms, data.histograms);
    else absent(parts.histograms, "No screening is counted in the metrics.");
    if (!isWanted()) return;
    if (data.accuracy.length) await drawAccuracy(parts.accuracy, data.accuracy);
    else absent(parts.accuracy, "There was no validation.");
    if (!isWanted()) return;
    if (data.flow.steps.length) await drawFlow(parts.flow, data.flow);
    else absent(parts.flow, "The metrics do not count what became of rollouts.");
  }

  let drawnFor = null;
  function conservation({ step, generated, rows, unaccounted }) {
    const lines = [
      ["generated", generated, "", "all that generation returned"],
      ...rows.map(([name, count, why]) => [name, count, generated ? percent(count / generated) : "", why]),
      ["unaccounted", unaccounted, "", unaccounted === 0 ? "the sum is right" : "a defect: the sum must be 0"],
    ];
    return el(
      "section",
      {},
      el("h2", {}, `Where the rollouts went, up to step ${step}`),
      runs.plainTable("conservation", ["", "rollouts", "share", ""], lines),
    );
  }

  runs.overview.push((index) => (index.parts.curriculum ? conservation(index.parts.curriculum) : null));

  runs.views.curriculum = {
    title: "curriculum",
    draw: async (params, index, isWanted, isShown) => {
      const data = await load("curriculum");
      if (!isWanted()) return;
      const isNew = !isShown || parts === null;
      if (isNew) parts = build();
      parts.state.rows = choose(data, params);
      if (parts.search !== document.activeElement) parts.search.value = params.search ?? "";
      parts.found.textContent = data.prompts.length
        ? `${number(parts.state.rows.length)} of ${number(data.prompts.length)} prompts`
        : "no histories: curriculum.record_prompts=true writes them";
      const chosen = parts.state.rows.findIndex((row) => row[PROMPT.name] === params.prompt);
      parts.table.show(parts.state.rows.length, Math.max(0, chosen), params.sort ?? null);
      if (params.prompt === undefined)
        absent(parts.detail, data.prompts.length ? "Choose a prompt to see its history." : "");
      else await drawPrompt(parts.detail, data, params.prompt, isWanted);
      // New data, another theme, or a new view: else the charts stay.
      const own = JSON.stringify([params.theme, document.documentElement.dataset.version]);
      if (!isWanted() || (!isNew && drawnFor === own)) return;
      drawnFor = own;
      await drawCharts(data, isWanted);
    },
    keys: () => [
      ...report.tableKeys(() => parts.table),
      { keys: ["/"], text: "search prompts", run: () => parts?.search.focus() },
      {
        keys: ["Escape"],
        text: "drop prompt and search",
        run: () => change({ prompt: null, search: null, sort: null }, { replace: true }),
      },
    ],
  };
})();
