// Fast DAPO: which prompts teach, by what became of them and by data source, and one prompt's text and history.
"use strict";

(() => {
  const { el, load, change, address, main } = report;
  const { number, percent, plainTable } = runs;
  const PROMPT = {
    name: 0,
    screenings: 1,
    rollouts: 2,
    rate: 3,
    first: 4,
    last: 5,
    trained: 6,
    mixed: 7,
    step: 8,
    state: 9,
    source: 10,
    text: 11,
    shard: 12,
  };
  const MEANING = {
    learning: "passes sometimes",
    solved: "its newest rollouts all passed",
    hopeless: "no rollout has ever passed",
  };
  const rate = (value) => (value === null ? "–" : percent(value));
  let parts = null;

  function choose(data, params) {
    const words = (params.search ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const rows = data.prompts.filter(
      (row) =>
        (params.state === undefined || row[PROMPT.state] === params.state) &&
        (params.source === undefined || (row[PROMPT.source] ?? "") === params.source) &&
        words.every((word) => `${row[PROMPT.name]} ${row[PROMPT.text]}`.toLowerCase().includes(word)),
    );
    if (!params.sort) return rows;
    const [key, sign] = params.sort.startsWith("-") ? [params.sort.slice(1), -1] : [params.sort, 1];
    const column = PROMPT[key] ?? PROMPT.step;
    return rows.toSorted(
      (a, b) =>
        (a[column] === null) - (b[column] === null) ||
        sign * (a[column] < b[column] ? -1 : a[column] > b[column] ? 1 : 0),
    );
  }

  // ------------------------------ one prompt ------------------------------

  async function drawPrompt(element, data, name, index, isWanted) {
    const row = data.prompts.find((one) => one[PROMPT.name] === name);
    if (row === undefined)
      return element.replaceChildren(
        el("p", { class: "note error" }, `there is no prompt ${name} in this run's records`),
      );
    const { events, text } = (await load(`prompts-${row[PROMPT.shard]}`))[name];
    if (!isWanted()) return undefined;
    const recorded = index.samples_of[name] ?? 0;
    const chart = el("div", { class: "chart", id: "prompt-chart" });
    element.replaceChildren(
      el("h2", {}, "Prompt ", el("code", {}, name)),
      el(
        "p",
        { class: "note" },
        `${row[PROMPT.state]} (${MEANING[row[PROMPT.state]]}), trained on ${row[PROMPT.trained]} times, ${row[PROMPT.mixed]} of them mixed`,
        text?.data_source ? ` · ${text.data_source}` : "",
        text?.ground_truth ? " · ground truth " : "",
        text?.ground_truth ? el("code", { id: "truth" }, text.ground_truth) : "",
        recorded ? " · " : "",
        recorded ? report.link({ view: "samples", prompt: name }, { id: "recorded" }, `its recorded rollouts (${recorded})`) : "",
      ),
      text?.prompt ? report.clamped(text.prompt, { id: "prompt-text" }) : "",
      chart,
      el(
        "details",
        {},
        el("summary", {}, `${events.length} events`),
        plainTable(
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
      ),
    );
    return curriculum.drawHistory(chart, data.events, events);
  }

  // ------------------------------ the lists ------------------------------

  function stateButtons(data) {
    const counted = Map.groupBy(data.prompts, (row) => row[PROMPT.state]);
    const button = (state, text, count, tip) =>
      el(
        "button",
        { "data-state": state ?? "", tip, onclick: () => change({ state, prompt: null }, { replace: true }) },
        `${text} ${number(count)}`,
      );
    return [
      button(null, "all", data.prompts.length, null),
      ...data.states.map((state) => button(state, state, counted.get(state)?.length ?? 0, [MEANING[state]])),
    ];
  }

  const sourceTable = (data) =>
    plainTable(
      "sources",
      ["data source", "prompts", ...data.states, "rollouts", "trained", "pass rate", "first → last"],
      data.sources.map(([source, prompts, ...others]) => {
        const [counts, [rollouts, trained, whole, first, last]] = [others.slice(0, 3), others.slice(3)];
        return [
          el(
            "button",
            {
              "data-source": source,
              onclick: () =>
                change({ source: address().source === source ? null : source, prompt: null }, { replace: true }),
            },
            source || "(none)",
          ),
          prompts,
          ...counts,
          rollouts,
          trained,
          rate(whole),
          `${rate(first)} → ${rate(last)}`,
        ];
      }),
    );

  function build(data) {
    const state = { rows: [] };
    const table = report.table({
      label: "Prompts",
      columns: [
        ...(data.has_texts ? [{ name: "what it asks", width: "minmax(8rem, 1fr)", tip: ["without the words that all prompts of its source have"] }] : []),
        { name: "prompt", width: data.has_texts ? "5rem" : "minmax(5rem, 1fr)", sort: "name" },
        { name: "state", width: "4.8rem", sort: "state" },
        { name: "mixed", width: "3.8rem", sort: "mixed", tip: ["times its rollouts differed, so that it taught"] },
        { name: "trained", width: "4.2rem", sort: "trained", tip: ["times trained on"] },
        { name: "first", width: "3.8rem", sort: "first", tip: ["pass rate of its first screening"] },
        { name: "last", width: "3.8rem", sort: "last", tip: ["pass rate of its last screening"] },
        { name: "all", width: "3.8rem", sort: "rate", tip: ["pass rate of all its rollouts"] },
        { name: "rollouts", width: "4.4rem", sort: "rollouts" },
        { name: "last step", width: "4.6rem", sort: "step" },
      ],
      sort: null,
      onsort: (sort) => change({ sort }, { replace: true }),
      cells: (place) => {
        const row = state.rows[place];
        return [
          ...(data.has_texts ? [el("span", { tip: [row[PROMPT.text]] }, row[PROMPT.text])] : []),
          el("code", {}, row[PROMPT.name]),
          el("span", { class: `lot ${row[PROMPT.state]}` }, row[PROMPT.state]),
          String(row[PROMPT.mixed]),
          String(row[PROMPT.trained]),
          rate(row[PROMPT.first]),
          rate(row[PROMPT.last]),
          rate(row[PROMPT.rate]),
          String(row[PROMPT.rollouts]),
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
    const states = stateButtons(data);
    const sources = sourceTable(data);
    const section = (title, ...inner) => el("section", {}, el("h2", {}, title), inner);
    main.className = "two even";
    main.replaceChildren(
      el(
        "div",
        { class: "side" },
        section(
          "Which prompts teach? Most often mixed first",
          el("div", { class: "bar" }, el("span", { class: "choices", role: "group", "aria-label": "state" }, states), search, found),
          el("div", { class: "short" }, table.element),
        ),
        detail,
        data.sources.length ? section("By data source", sources) : "",
      ),
      el(
        "div",
        { class: "side" },
        section("Pass rates of the screened prompts", histograms),
        section("Accuracy against rollouts", accuracy),
        section("Where the rollouts went", flow),
      ),
    );
    return { state, table, search, histograms, accuracy, flow, found, detail, states, sources };
  }

  let drawnFor = null;
  function conservation({ step, generated, rows, unaccounted }) {
    const lines = [
      ["generated", generated, "", "all that generation returned"],
      ...rows.map(([name, count, why]) => [name, count, generated ? percent(count / generated) : "", why]),
      ["unaccounted", unaccounted, "", unaccounted === 0 ? "all accounted for" : "a defect: this must be 0"],
    ];
    return el(
      "section",
      {},
      el("h2", {}, `Where the rollouts went, up to step ${step}`),
      plainTable("conservation", ["", "rollouts", "share", ""], lines),
    );
  }

  runs.overview.push((index) => (index.parts.curriculum ? conservation(index.parts.curriculum) : null));

  runs.views.curriculum = {
    title: "curriculum",
    draw: async (params, index, isWanted, isShown) => {
      const data = await load("curriculum");
      if (!isWanted()) return;
      // New data, another theme, or a new view: else the charts stay.
      const own = JSON.stringify([params.theme, document.documentElement.dataset.version]);
      const isNew = !isShown || parts === null || drawnFor?.[0] !== data;
      if (isNew) parts = build(data);
      parts.state.rows = choose(data, params);
      if (parts.search !== document.activeElement) parts.search.value = params.search ?? "";
      parts.found.textContent = data.prompts.length
        ? `${number(parts.state.rows.length)} of ${number(data.prompts.length)} prompts`
        : "no histories: curriculum.record_prompts=true writes them";
      for (const button of parts.states)
        button.setAttribute("aria-pressed", String(button.dataset.state === (params.state ?? "")));
      for (const button of parts.sources.querySelectorAll("button"))
        button.setAttribute("aria-pressed", String(button.dataset.source === params.source));
      const name = params.prompt ?? parts.state.rows[0]?.[PROMPT.name];
      const chosen = parts.state.rows.findIndex((row) => row[PROMPT.name] === name);
      parts.table.show(parts.state.rows.length, Math.max(0, chosen), params.sort ?? null);
      if (name === undefined) curriculum.absent(parts.detail, "");
      else await drawPrompt(parts.detail, data, name, index, isWanted);
      if (!isWanted() || (!isNew && drawnFor[1] === own)) return;
      drawnFor = [data, own];
      await curriculum.drawCharts(parts, data, isWanted);
    },
    keys: () => [
      ...report.tableKeys(() => parts.table),
      { keys: ["/"], text: "search prompts", run: () => parts?.search.focus() },
      {
        keys: ["Escape"],
        text: "drop prompt, search and filters",
        run: () => change({ prompt: null, search: null, sort: null, state: null, source: null }, { replace: true }),
      },
    ],
  };
})();
