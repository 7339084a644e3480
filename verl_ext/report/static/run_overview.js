// The first view of a run: is it finished, is anything odd, does it learn, where did time and rollouts go.
"use strict";

(() => {
  const { el, main } = report;
  const { number, percent, plainTable } = runs;

  function facts(index) {
    const { state, numbers } = index;
    const { val_accuracy_before: before, val_accuracy_after: after, val_accuracy_best: best } = numbers;
    const rows = [["recipe", index.recipe]];
    if (after !== undefined)
      rows.push([
        "validation accuracy",
        before === undefined
          ? number(after)
          : `${number(before)} → ${number(after)} (${after >= before ? "+" : "−"}${Math.abs(100 * (after - before)).toFixed(1)} points)`,
      ]);
    if (best !== undefined && best > (after ?? -1)) rows.push(["best validation accuracy", number(best)]);
    rows.push(...index.findings);
    rows.push(["steps", state.of && state.of !== state.step ? `${state.step} of ${state.of}` : number(state.step)]);
    const names = [
      ["rollouts generated", "rollouts_generated"],
      ["rollouts trained on", "rollouts_trained"],
      ["rollouts avoided", "rollouts_avoided"],
      ["tokens trained on", "tokens_trained"],
    ];
    for (const [text, name] of names) if (numbers[name]) rows.push([text, number(numbers[name])]);
    if (numbers.seconds) rows.push(["training time", duration(numbers.seconds)]);
    if (index.last_write) rows.push(["last record", new Date(1000 * index.last_write).toLocaleString("sv")]);
    return plainTable("facts", ["", ""], rows);
  }

  function duration(seconds) {
    const whole = Math.round(seconds);
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
    return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
  }

  const warning = (one) =>
    el(
      "li",
      { class: `warning ${one.level}` },
      el("strong", {}, `${one.level === "problem" ? "⚠ " : ""}${one.title}`),
      " ",
      one.what,
      el("div", { class: "note" }, "→ ", one.remedy),
      el(
        "div",
        { class: "note" },
        one.steps.length ? `at steps ${runs.ranges(one.steps)} ` : "",
        one.metric ? report.link({ view: "curves", metrics: one.metric }, {}, "show the curve") : "",
      ),
    );

  const phaseNames = (index) => index.phases.map(([name]) => name);

  const drawPhases = (element, index) =>
    report.chart(
      element,
      [
        {
          type: "bar",
          orientation: "h",
          x: index.phases.map(([, seconds]) => seconds).toReversed(),
          y: phaseNames(index).toReversed(),
          marker: {
            color: phaseNames(index)
              .map((_, place) => runs.colour(place))
              .toReversed(),
          },
          text: index.phases.map(([, seconds]) => percent(seconds / total(index))).toReversed(),
          textposition: "auto",
          hovertemplate: "%{y}: %{x:.1f} s, %{text}<extra></extra>",
        },
      ],
      {
        height: 60 + 26 * index.phases.length,
        margin: { l: 90, r: 12, t: 4, b: 36 },
        xaxis: { title: { text: "seconds" } },
        yaxis: { automargin: true },
      },
    );

  const drawPhasesOverTime = (element, index) =>
    report.chart(
      element,
      phaseNames(index)
        .filter((name) => name in index.phase_columns)
        .map((name) => ({
          type: "scatter",
          mode: "lines",
          name,
          stackgroup: "phases",
          x: index.axes.step,
          y: index.phase_columns[name],
          line: { width: 0.5, color: runs.colour(phaseNames(index).indexOf(name)) },
          hovertemplate: `${name}: %{y:.2f} s<extra></extra>`,
        })),
      {
        height: 200,
        showlegend: false,
        hovermode: "x unified",
        margin: { l: 52, r: 12, t: 8, b: 38 },
        xaxis: { title: { text: "step" }, nticks: 7 },
        yaxis: { title: { text: "seconds a step" }, rangemode: "tozero" },
      },
    );

  const total = (index) => index.phases.reduce((sum, [, seconds]) => sum + seconds, 0);

  runs.views.overview = {
    title: "overview",
    draw: async (params, index, isWanted) => {
      const parts = runs.overview.map((drawPart) => drawPart(index)).filter((part) => part !== null);
      const problems = index.warnings.filter((one) => one.level === "problem").length;
      const charts = index.headlines.slice(0, 6).map((name) => [name, el("div", { class: "chart" })]);
      const phases = el("div", { class: "chart", id: "phases" });
      const overTime = el("div", { class: "chart", id: "phases-over-time" });
      main.className = "two";
      main.replaceChildren(
        el(
          "div",
          { class: "side" },
          el(
            "section",
            {},
            el(
              "h2",
              {},
              el(
                "span",
                { class: `state ${index.state.finished ? "done" : "going"}` },
                index.state.finished ? "finished" : "not finished",
              ),
              " ",
              index.name,
            ),
            facts(index),
          ),
          el(
            "section",
            {},
            el(
              "h2",
              {},
              index.warnings.length
                ? `Warnings: ${problems} ${problems === 1 ? "problem" : "problems"}, ${index.warnings.length - problems} to look at`
                : "Warnings",
            ),
            index.warnings.length
              ? el("ul", { id: "warnings" }, index.warnings.map(warning))
              : el("p", { class: "note" }, "None: no rule found anything odd."),
          ),
          parts.length
            ? parts
            : el(
                "p",
                { class: "note" },
                "This recipe counts only rollouts generated and trained on, so there is no table of where they went.",
              ),
          index.phases.length
            ? el("section", {}, el("h2", {}, `Time by phase: ${duration(total(index))} in all`), phases, overTime)
            : el("p", { class: "note" }, "No step is recorded yet."),
        ),
        el(
          "div",
          { class: "side" },
          el(
            "div",
            { class: "charts" },
            charts.map(([name, chart]) =>
              el(
                "figure",
                { "data-metric": name },
                el("figcaption", {}, report.link({ view: "curves", metrics: name }, {}, name)),
                chart,
              ),
            ),
          ),
        ),
      );
      for (const [name, chart] of charts) {
        await runs.drawMetric(chart, index, name, { height: 180 });
        if (!isWanted()) return;
      }
      if (index.phases.length) {
        await drawPhases(phases, index);
        await drawPhasesOverTime(overTime, index);
      }
    },
    keys: () => [],
  };
})();
