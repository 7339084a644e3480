// Problems x redaction length x time: one state per row, its actions coloured by reward.
"use strict";

(() => {
  const { el, go, change, address, main } = report;
  const { ROW, ACTION, KINDS, arrow, number, visibleToken, rewardBox } = trace;

  const ONLY = {
    "": "all",
    up: "▲ pushed up",
    down: "▼ pushed down",
    wrong_way: "✗ wrong way",
    overshot: "» overshot",
    still: "= still",
    unlabelled: "nothing labelled",
    failures: "infrastructure errors",
  };
  const some = (test) => (row) => row[ROW.actions].some(test);
  const TESTS = {
    up: some((action) => action[ACTION.advantage] > 0),
    down: some((action) => action[ACTION.advantage] < 0),
    wrong_way: some((action) => action[ACTION.kind] === "wrong_way"),
    overshot: some((action) => action[ACTION.kind] === "overshot"),
    still: some((action) => action[ACTION.kind] === "still"),
    unlabelled: (row) => !some((action) => action[ACTION.advantage] !== 0)(row),
    failures: (row) => row[ROW.failures] > 0,
  };
  const SORTS = { k: ROW.k, step: ROW.step, reward: ROW.reward, version: ROW.version, moved: ROW.moved, gap: ROW.gap };
  const rolloutsOf = ({ index, places }) => places.reduce((sum, place) => sum + index.rows[place][ROW.rollouts], 0);

  // "5" or "5-20"
  function range(text) {
    const match = /^\s*(\d+)\s*(?:-\s*(\d+))?\s*$/.exec(text ?? "");
    return match ? [Number(match[1]), Number(match[2] ?? match[1])] : null;
  }
  const within = (limits, value) => limits === null || (value >= limits[0] && value <= limits[1]);

  function choose(index, params) {
    const wanted = (params.problem ?? "").toLowerCase();
    const problems = index.problems.map((problem) => problem.toLowerCase().includes(wanted));
    const [redacted, step] = [range(params.redacted), range(params.step)];
    const test = TESTS[params.only] ?? (() => true);
    const places = [];
    index.rows.forEach((row, place) => {
      if (problems[row[ROW.problem]] && within(redacted, row[ROW.k]) && within(step, row[ROW.step]) && test(row))
        places.push(place);
    });
    const sort = params.sort ?? "problem";
    const [key, sign] = sort.startsWith("-") ? [sort.slice(1), -1] : [sort, 1];
    const rows = index.rows;
    const byName = (a, b) => index.problems[a[ROW.problem]].localeCompare(index.problems[b[ROW.problem]]);
    const byTime = (a, b) => a[ROW.step] - b[ROW.step] || b[ROW.k] - a[ROW.k];
    const column = SORTS[key];
    // States without a reward come last, whichever way.
    const byColumn = (a, b) =>
      (a[column] === null) - (b[column] === null) || sign * ((a[column] ?? 0) - (b[column] ?? 0));
    places.sort((x, y) => {
      const [a, b] = [rows[x], rows[y]];
      if (column === undefined) return sign * byName(a, b) || byTime(a, b) || x - y;
      return byColumn(a, b) || byName(a, b) || byTime(a, b) || x - y;
    });
    return places;
  }

  // ------------------------------ moves by step ------------------------------

  const MOVES = ["intended", "overshot", "still", "wrong_way"];

  // A bar for each step: how the labelled tokens of the states in the list moved. A click shows only that step.
  function moves(index, places) {
    const steps = new Map();
    for (const place of places) {
      const row = index.rows[place];
      if (!steps.has(row[ROW.step])) steps.set(row[ROW.step], Object.fromEntries(MOVES.map((kind) => [kind, 0])));
      const counts = steps.get(row[ROW.step]);
      for (const action of row[ROW.actions]) if (action[ACTION.kind] in counts) counts[action[ACTION.kind]]++;
    }
    const sums = [...steps].map(([step, counts]) => [step, counts, MOVES.reduce((sum, kind) => sum + counts[kind], 0)]);
    const most = Math.max(1, ...sums.map(([, , sum]) => sum));
    return sums
      .toSorted(([a], [b]) => a - b)
      .map(([step, counts, sum]) =>
        el(
          "button",
          {
            class: "column",
            "data-step": step,
            "aria-label": `step ${step}`,
            tip: [
              `step ${step}: ${sum} labelled tokens measured`,
              ...MOVES.filter((kind) => counts[kind]).map((kind) => `${counts[kind]} ${KINDS[kind].text}`),
            ],
            onclick: () => change({ step: address().step === String(step) ? null : step, row: null }),
          },
          MOVES.map((kind) =>
            el("i", { class: kind, style: { height: `${Math.round((40 * counts[kind]) / most)}px` } }),
          ),
        ),
      );
  }

  // ------------------------------ cells ------------------------------

  function chip(index, row, action) {
    const [token, reward, advantage, kind, isTeacher] = action;
    const what = advantage > 0 ? "pushed up" : advantage < 0 ? "pushed down" : "no label";
    const told = KINDS[kind]?.text ?? (advantage === 0 ? null : "movement not measured");
    return el(
      "button",
      {
        class: isTeacher ? "chip teacher" : "chip",
        "data-advantage": advantage,
        "data-token": token,
        tabindex: "-1",
        tip: () => [
          `token ${JSON.stringify(trace.tokenText(token))} (id ${token})`,
          isTeacher ? "the golden solution's own next token" : "sampled from the policy",
          reward === null ? "no rollout has a label" : `action reward ${number(reward)}`,
          told ? `${what}: ${told}` : what,
        ],
        onclick: (event) => {
          event.stopPropagation();
          go(trace.stateAddress(index, row, token));
        },
      },
      rewardBox(
        reward,
        `${arrow(advantage)}${visibleToken(token).slice(0, 12)}`,
        KINDS[kind] ? el("sup", { class: `kind ${kind}` }, KINDS[kind].mark) : null,
      ),
    );
  }

  function cells(index, row) {
    const problem = index.problems[row[ROW.problem]];
    return [
      report.link(
        { view: "problem", problem, numbers: address().numbers },
        { class: "problem", tabindex: "-1" },
        problem,
      ),
      row[ROW.actions].map((action) => chip(index, row, action)),
      String(row[ROW.k]),
      String(row[ROW.step]),
      rewardBox(row[ROW.reward]),
      number(row[ROW.moved], 2),
      number(row[ROW.gap], 2),
      String(row[ROW.rollouts]) + (row[ROW.failures] ? ` (${row[ROW.failures]} ⚠)` : ""),
    ];
  }

  // ------------------------------ the view ------------------------------

  let parts = null;

  function build() {
    const field = (name, label, hint) =>
      el(
        "label",
        {},
        label,
        el("input", {
          name,
          placeholder: hint,
          autocomplete: "off",
          spellcheck: "false",
          size: name === "problem" ? 14 : 7,
          oninput: (event) => change({ [name]: event.target.value, row: null }, { replace: true }),
        }),
      );
    const buttons = Object.entries(ONLY).map(([only, text]) =>
      el("button", { "data-only": only, onclick: () => change({ only, row: null }) }, text),
    );
    const found = el("span", { class: "found", role: "status" });
    const inputs = [
      field("problem", "problem", "id or part"),
      field("redacted", "hidden tokens k", "5 or 5-20"),
      field("step", "step", "3 or 3-9"),
    ];
    const state = { index: null, places: [] };
    const table = report.table({
      label: "States",
      columns: [
        { name: "problem", width: "9rem", sort: "problem" },
        { name: "actions", tip: ["coloured by action reward"], width: "minmax(14rem, 1fr)" },
        { name: "k", width: "4rem", sort: "k", tip: ["k: hidden tokens at the end of the golden solution"] },
        { name: "step", width: "4.5rem", sort: "step" },
        {
          name: "state reward",
          width: "8rem",
          sort: "reward",
          tip: ["mean of the action rewards, weighted by the policy"],
        },
        { name: "moved", width: "5rem", sort: "moved", tip: ["largest change of a labelled token's log-prob, in nats"] },
        { name: "to target", width: "5.5rem", sort: "gap", tip: ["largest distance of a labelled token from its target, in nats"] },
        { name: "rollouts", width: "7rem" },
      ],
      sort: "problem",
      onsort: (sort) => change({ sort: sort === "problem" ? null : sort, row: null }),
      cells: (place) => cells(state.index, state.index.rows[state.places[place]]),
      open: (place) => go(trace.stateAddress(state.index, state.index.rows[state.places[place]])),
      onselect: (row) => {
        if (String(row) === (address().row ?? "0")) return;
        const query = new URLSearchParams({ ...address(), row });
        history.replaceState(null, "", `?${query}`);
      },
    });
    const bar = el(
      "form",
      { class: "bar", onsubmit: (event) => event.preventDefault() },
      inputs,
      el("span", { class: "choices", role: "group", "aria-label": "show only" }, buttons),
      found,
    );
    const legend = el(
      "p",
      { class: "legend" },
      rewardBox(0, "reward 0"),
      rewardBox(0.5, "0.5"),
      rewardBox(1, "1"),
      rewardBox(null, "no label"),
      el("span", {}, "▲ pushed up"),
      el("span", {}, "▼ pushed down"),
      el("span", { class: "chip teacher sample" }, "golden token"),
      Object.values(KINDS).map(({ mark, text }) => el("span", {}, `${mark} ${text}`)),
    );
    const strip = el("div", { class: "strip", id: "moves" });
    return { bar, strip, legend, table, inputs: inputs.map((label) => label.lastChild), buttons, found, state };
  }

  trace.views.table = {
    forget: () => {},
    draw: async (params, index, isWanted, isShown) => {
      if (!isShown || parts === null) {
        parts = build();
        main.className = "fill";
        main.replaceChildren(parts.bar, parts.strip, parts.legend, parts.table.element);
      }
      const { table, inputs, buttons, found, state } = parts;
      report.setHeader([[trace.title(index), null]], index.about);
      report.setKeys([
        ...report.tableKeys(() => parts.table),
        { keys: ["/"], text: "filter by problem", run: () => inputs[0].focus() },
        {
          keys: ["u"],
          text: "only states with a token pushed up",
          run: () => change({ only: address().only === "up" ? null : "up", row: null }),
        },
        { keys: ["Escape"], text: "drop all filters", run: () => go({}) },
      ]);
      for (const input of inputs) if (input !== document.activeElement) input.value = params[input.name] ?? "";
      for (const button of buttons)
        button.setAttribute("aria-pressed", String(button.dataset.only === (params.only ?? "")));
      state.index = index;
      state.places = choose(index, params);
      found.textContent = `${state.places.length.toLocaleString("en")} of ${index.rows.length.toLocaleString("en")} states, ${rolloutsOf(state).toLocaleString("en")} of ${index.num_rollouts.toLocaleString("en")} rollouts`;
      parts.strip.replaceChildren(...moves(index, state.places));
      table.show(state.places.length, Number(params.row ?? 0), params.sort ?? "problem");
      if (!isShown && document.activeElement === document.body) table.element.focus({ preventScroll: true });
    },
    // Places of the states that an address's filters leave, in the list's order.
    choose,
  };
})();
