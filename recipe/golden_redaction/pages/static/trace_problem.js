// One problem: how far it came, and which tokens of its golden solution mattered.
"use strict";

(() => {
  const { el, load, go, main } = report;
  const { ROW, number } = trace;

  function timeline(element, rows, index) {
    const steps = rows.map((row) => row[ROW.step]);
    const line = (name, values, colour, more) => ({
      type: "scatter",
      name,
      x: steps,
      y: values,
      mode: "lines+markers",
      line: { color: colour, ...more.line },
      ...more.trace,
    });
    return report.chart(
      element,
      [
        line(
          "hidden tokens k",
          rows.map((row) => row[ROW.k]),
          "#2b7bba",
          { line: { shape: "hv" }, trace: {} },
        ),
        line(
          "state reward",
          rows.map((row) => row[ROW.reward]),
          "#d97706",
          { line: { dash: "dot" }, trace: { yaxis: "y2", marker: { symbol: "diamond", size: 8 } } },
        ),
      ],
      {
        height: 260,
        legend: { orientation: "h", y: 1.15 },
        xaxis: { title: { text: "step" }, rangemode: "tozero" },
        yaxis: { title: { text: "k" }, rangemode: "tozero" },
        yaxis2: {
          title: { text: "state reward" },
          overlaying: "y",
          side: "right",
          range: [-0.03, 1.03],
          tickvals: [0, 0.25, 0.5, 0.75, 1],
          showgrid: false,
        },
      },
      (point) => go(trace.stateAddress(index, rows[point.pointNumber])),
    );
  }

  const stateLink = (index, row) => {
    const to = trace.stateAddress(index, row);
    const pushed = row[ROW.actions].filter((action) => action[trace.ACTION.advantage] !== 0);
    return el(
      "tr",
      {},
      el("td", {}, report.link(to, {}, `step ${row[ROW.step]}`)),
      el("td", {}, String(row[ROW.k])),
      el("td", {}, trace.rewardBox(row[ROW.reward])),
      el("td", {}, `${number(100 * row[ROW.coverage], 1)} %`),
      el(
        "td",
        {},
        pushed.map((action) => [
          report.link(
            { ...to, action: action[trace.ACTION.token] },
            { class: "pushed-token" },
            `${trace.arrow(action[trace.ACTION.advantage])} ${trace.visibleToken(action[trace.ACTION.token])} ${trace.KINDS[action[trace.ACTION.kind]]?.mark ?? ""}`,
          ),
          " ",
        ]),
      ),
    );
  };

  trace.views.problem = {
    draw: async (params, index, isWanted) => {
      const place = index.problems.indexOf(params.problem);
      if (place < 0) throw new Error(`there is no problem ${params.problem} in this trace`);
      const problem = await load(`problem-${place}`);
      if (!isWanted()) return;
      const rows = problem.entries
        .map((entry) => index.rows[entry.entry])
        .toSorted((a, b) => a[ROW.step] - b[ROW.step] || b[ROW.k] - a[ROW.k]);
      const chart = el("div", { class: "chart", id: "timeline" });
      const items = trace.solutionItems(problem, index, { open: (row) => go(trace.stateAddress(index, row)) });
      const mattered = items.filter((item) => item.role.includes("mattered")).length;
      const pairs = Object.entries(problem.pairs ?? {}).flatMap(([part, own]) =>
        own.map((pair, n) => [`${part} ${n}`, ...pair]),
      );
      const unlike = problem.entries.filter((entry) => !entry.fits).length;
      main.className = "two";
      main.replaceChildren(
        el(
          "div",
          { class: "side" },
          el(
            "section",
            {},
            el("h2", {}, "The golden solution"),
            el(
              "p",
              { class: "facts" },
              `${items.length} tokens, of which ${mattered} mattered: a token there was better or worse than the others.`,
            ),
            trace.tokensLegend(),
            trace.tokens(items, "golden solution"),
            problem.solution.is_complete
              ? ""
              : el("p", { class: "note" }, "Put together from the states: a ? is a token that no state has shown yet."),
            unlike
              ? el(
                  "p",
                  { class: "note" },
                  `${unlike} states have another prompt or golden solution and are not shown here.`,
                )
              : "",
          ),
        ),
        el(
          "div",
          { class: "side" },
          el("section", {}, el("h2", {}, "Over time"), chart),
          el(
            "section",
            {},
            el("h2", {}, `${rows.length} states`),
            el(
              "div",
              { class: "scroll" },
              el(
                "table",
                { id: "states" },
                el(
                  "thead",
                  {},
                  el(
                    "tr",
                    {},
                    ["", "k", "state reward", "coverage", "pushed"].map((name) => el("th", {}, name)),
                  ),
                ),
                el(
                  "tbody",
                  {},
                  rows.map((row) => stateLink(index, row)),
                ),
              ),
            ),
          ),
          pairs.length
            ? el(
                "section",
                {},
                el("h2", {}, "Grids"),
                el(
                  "div",
                  { class: "pairs" },
                  pairs.map(([name, input, output]) =>
                    el(
                      "div",
                      { class: "pair" },
                      report.grid(input, `${name}: input`, { side: 120 }),
                      report.grid(output, "output", { side: 120 }),
                    ),
                  ),
                ),
              )
            : "",
        ),
      );
      report.setHeader(
        [
          [trace.title(index), {}],
          [params.problem, null],
        ],
        index.about,
        pairs.length ? [report.numbersButton()] : [],
      );
      report.setKeys([
        { keys: ["Enter"], text: "open the newest state", run: () => go(trace.stateAddress(index, rows.at(-1))) },
        { keys: ["s"], text: "its states in the list", run: () => go({ problem: params.problem }) },
        ...(pairs.length ? [report.numbersKey] : []),
        { keys: ["Escape"], text: "back to the list", run: () => go({}) },
      ]);
      await timeline(chart, rows, index);
    },
  };

  report.start(trace);
})();
