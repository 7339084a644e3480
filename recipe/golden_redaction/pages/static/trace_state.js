// One state: its prompt with the golden tokens that it shows, its actions, and the rollouts of one of them.
"use strict";

(() => {
  const { el, load, go, change, main } = report;
  const { ROW, number, rewardBox, actionTable, story, showRollouts } = trace;

  // ------------------------------ the prompt ------------------------------

  const TAIL = 60; // tokens of the prompt that are shown where no golden token is

  function promptItems(problem, entry, index, row) {
    const ids = problem.sequences[entry.sequence].slice(0, entry.length);
    const start = Math.min(entry.start, ids.length);
    const given = entry.log_probs;
    const own = (place) =>
      given
        ? { given: true, before: null, after: given.policy[place], reference: given.reference?.[place] ?? null }
        : {};
    const solution = entry.fits
      ? trace.solutionItems(problem, index, {
          until: ids.length - start,
          open: (to) => go(trace.stateAddress(index, to)),
        })
      : [];
    const items = ids.map((id, place) =>
      place >= start && entry.fits
        ? { ...solution[place - start], place, ...(given ? own(place) : {}) }
        : { id, place, role: "prompt", ...own(place) },
    );
    return { prompt: items.slice(0, start), golden: items.slice(start), hidden: row[ROW.k] };
  }

  function promptView(problem, entry, index, row, action, params) {
    const { prompt, golden, hidden } = promptItems(problem, entry, index, row);
    const whole = params.prompt === "full";
    const actionItem = action && {
      id: action.token,
      place: entry.length,
      role: "action",
      current: true,
      advantage: action.advantage,
      before: action.before,
      after: action.trainer ?? action.engine,
      reference: action.reference,
      notes: [
        action.is_teacher ? "this action: the golden solution's own token" : "this action: sampled from the policy",
      ],
    };
    return el(
      "section",
      { class: "prompt" },
      el("h2", {}, "The state"),
      el(
        "button",
        {
          id: "whole-prompt",
          "aria-pressed": String(whole),
          onclick: () => change({ prompt: whole ? null : "full" }, { replace: true }),
        },
        whole ? "hide the prompt" : `show the prompt (${prompt.length} tokens)`,
      ),
      trace.tokensLegend(),
      trace.tokens(
        [
          ...(whole ? prompt : golden.length > 0 ? [] : prompt.slice(-TAIL)),
          ...golden,
          ...(actionItem ? [actionItem] : []),
        ],
        "tokens of the state",
      ),
      el(
        "p",
        { class: "note" },
        entry.fits
          ? `${golden.length} tokens of the golden solution are shown to the policy; the ${hidden} behind them are hidden.`
          : `${hidden} tokens of the golden solution are hidden. This state has another prompt or solution than the newest one of its problem.`,
      ),
    );
  }

  // ------------------------------ the view ------------------------------

  trace.views.state = {
    draw: async (params, index, isWanted) => {
      const place = trace.findRow(index, params);
      if (place < 0)
        throw new Error(
          `there is no state of problem ${params.problem} with ${params.redacted} hidden tokens at step ${params.step}`,
        );
      const row = index.rows[place];
      const problem = await load(`problem-${row[ROW.problem]}`);
      if (!isWanted()) return;
      const entry = problem.entries.find((one) => one.entry === place);
      const labelled = entry.actions.filter((action) => action.advantage !== 0);
      const open =
        entry.actions.find((action) => String(action.token) === params.action) ??
        labelled.find((action) => action.advantage > 0) ??
        labelled[0] ??
        entry.actions[0];
      const list = el("section", { class: "rollouts" });
      const pairs = problem.pairs?.train ?? [];
      main.className = "two";
      main.replaceChildren(
        el(
          "div",
          { class: "side" },
          promptView(problem, entry, index, row, open, params),
          pairs.length
            ? el(
                "section",
                {},
                el("h2", {}, "Examples"),
                el(
                  "div",
                  { class: "pairs" },
                  pairs.map(([input, output], n) =>
                    el(
                      "div",
                      { class: "pair" },
                      report.grid(input, `train ${n}: input`, { side: 110 }),
                      report.grid(output, "output", { side: 110 }),
                    ),
                  ),
                ),
              )
            : "",
        ),
        el(
          "div",
          { class: "side" },
          el(
            "p",
            { class: "facts" },
            "state reward ",
            rewardBox(row[ROW.reward]),
            ` over ${number(100 * row[ROW.coverage], 1)} % of the probability · ${row[ROW.k]} tokens hidden · step ${row[ROW.step]} · weights ${row[ROW.version]}`,
          ),
          actionTable(entry, open),
          story(entry, open, row, problem),
          list,
        ),
      );
      const back = trace.listAddress();
      report.setHeader(
        [
          [trace.title(index), back],
          [problem.problem, { view: "problem", problem: problem.problem, numbers: params.numbers }],
          [`k ${row[ROW.k]}, step ${row[ROW.step]}`, null],
        ],
        index.about,
        pairs.length ? [report.numbersButton()] : [],
      );
      report.setKeys(keys(index, place, entry, open, back));
      await showRollouts(list, entry, open, params, problem, row);
    },
  };

  function keys(index, place, entry, open, back) {
    const step = (by) => () => {
      const next = entry.actions[entry.actions.indexOf(open) + by];
      if (next) change({ action: next.token, rollout: null }, { replace: true });
    };
    const other = (by) => () => {
      const places = trace.views.table.choose(index, back);
      const next = places[places.indexOf(place) + by];
      if (next !== undefined) go(trace.stateAddress(index, index.rows[next]), { replace: true });
    };
    return [
      { keys: ["j", "ArrowDown"], text: "next action", run: step(1) },
      { keys: ["k", "ArrowUp"], text: "action before", run: step(-1) },
      { keys: ["l", "ArrowRight"], text: "next state of the list", run: other(1) },
      { keys: ["h", "ArrowLeft"], text: "state before", run: other(-1) },
      {
        keys: ["Enter"],
        text: "open the first rollout",
        run: () => change({ action: open.token, rollout: 0 }, { replace: true }),
      },
      { keys: ["p"], text: "whole prompt", run: () => document.getElementById("whole-prompt").click() },
      ...(document.getElementById("numbers") ? [report.numbersKey] : []),
      { keys: ["Escape"], text: "back to the list", run: () => go(back) },
    ];
  }
})();
