// The first view of a run: is it finished, is anything odd, does it learn, where did time and rollouts go.
"use strict";

(() => {
  const { el, main } = report;
  const { number, percent, plainTable, duration } = runs;

  // Of n prompts, each right or wrong: where the true share is, 19 times of 20.
  const margin = (share, prompts) => 1.96 * Math.sqrt((share * (1 - share)) / prompts);
  const asPercent = (share) => `${(100 * share).toFixed(1)} %`;

  function accuracy(before, after, prompts) {
    const [sign, points] = [after >= before ? "+" : "−", Math.abs(100 * (after - before)).toFixed(1)];
    const change = before === undefined ? asPercent(after) : `${asPercent(before)} → ${asPercent(after)} (${sign}${points} points)`;
    if (!prompts || after < 0 || after > 1) return change;
    return `${change}, ± ${(100 * margin(after, prompts)).toFixed(1)} points at most (95 %, ${number(prompts)} prompts)`;
  }

  function facts(index) {
    const { state, numbers } = index;
    const { val_accuracy_before: before, val_accuracy_after: after, val_accuracy_best: best } = numbers;
    const rows = [["recipe", index.recipe]];
    if (after !== undefined) rows.push(["validation accuracy", accuracy(before, after, index.num_val_prompts)]);
    if (best !== undefined && best > (after ?? -1)) rows.push(["best validation accuracy", asPercent(best)]);
    rows.push(...index.findings);
    rows.push(["steps", state.of && state.of !== state.step ? `${state.step} of ${state.of}` : number(state.step)]);
    const names = [
      ["rollouts generated", "rollouts_generated"],
      ["rollouts trained on", "rollouts_trained"],
      ["rollouts avoided (estimate)", "rollouts_avoided"],
      ["tokens trained on", "tokens_trained"],
    ];
    for (const [text, name] of names) if (numbers[name]) rows.push([text, number(numbers[name])]);
    if (numbers.seconds) rows.push(["seconds in steps", duration(numbers.seconds)]);
    if (state.since) rows.push(["started", `${runs.moment(state.since)}${state.host ? ` on ${state.host}` : ""}`]);
    if (index.logs) rows.push(index.logs);
    if (index.last_write) rows.push(["last record", runs.moment(index.last_write)]);
    return plainTable("facts", ["", ""], rows);
  }

  // A link works only next to the file: a served page has no other files.
  const ownPage = ({ title, file, command }) =>
    el(
      "p",
      { class: "own-page" },
      `${title}: `,
      file !== null && !report.isLive ? el("a", { href: file }, file) : el("code", {}, command),
    );

  const warning = (index, one) =>
    el(
      "li",
      { class: `warning ${one.level}` },
      el("strong", {}, `${one.level === "problem" ? "⚠ " : ""}${one.title}`),
      " ",
      runs.withMetrics(index, one.what),
      el("div", { class: "note" }, "→ ", one.remedy),
      el(
        "div",
        { class: "note" },
        one.steps.length ? `at steps ${runs.ranges(one.steps)} ` : "",
        // A metric that was never a number has no curve.
        one.metric && runs.groupOf(index, one.metric) ? report.link({ view: "curves", metrics: one.metric }, runs.explained(index, one.metric), "show the curve") : "",
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
          x: index.phase_steps,
          y: index.phase_columns[name],
          line: { width: 0.5, color: runs.colour(phaseNames(index).indexOf(name)) },
          hovertemplate: `${name}: %{y:.2f} s<extra></extra>`,
        })),
      {
        height: 240,
        legend: { orientation: "h", y: 1.25, font: { size: 11 } },
        hovermode: "x unified",
        margin: { l: 52, r: 12, t: 8, b: 38 },
        xaxis: { title: { text: "step" }, nticks: 7 },
        yaxis: { title: { text: "seconds per step" }, rangemode: "tozero" },
      },
    );

  const total = (index) => index.phases.reduce((sum, [, seconds]) => sum + seconds, 0);

  runs.views.overview = {
    title: "overview",
    draw: async (params, index, isWanted) => {
      const parts = runs.overview.map((drawPart) => drawPart(index)).filter((part) => part !== null);
      const [badge, level, sentence] = runs.stateOf(index.state);
      const problems = index.warnings.filter((one) => one.level === "problem").length;
      const several = index.accuracies.length > 1 ? index.accuracies.slice(0, 8) : [];
      const others = index.headlines.filter((name) => !several.includes(name));
      const charts = [...(several.length ? [several] : []), ...others.map((name) => [name])]
        .slice(0, 6)
        .map((names) => [names, el("div", { class: "chart" })]);
      const phases = el("div", { class: "chart", id: "phases" });
      const overTime = el("div", { class: "chart", id: "phases-over-time" });
      const isTimed = index.phases.length > 0 && index.phase_steps.length > 0;
      main.className = "two";
      main.replaceChildren(
        el(
          "div",
          { class: "side" },
          el(
            "section",
            {},
            el("h2", {}, el("span", { class: `state ${level}` }, badge), " ", index.name),
            el(
              "p",
              { id: "state", class: level },
              sentence,
              report.isLive || level !== "going"
                ? ""
                : el("span", { class: "note" }, ` As of ${runs.moment(index.state.read_at)}.`),
            ),
            facts(index),
            index.own_pages.map(ownPage),
          ),
          el(
            "section",
            {},
            el(
              "h2",
              {},
              index.warnings.length
                ? `${number(index.warnings.length)} ${index.warnings.length === 1 ? "warning" : "warnings"}${problems ? `, ${problems} serious` : ""}`
                : "Warnings",
            ),
            index.warnings.length
              ? el("ul", { id: "warnings" }, index.warnings.map((one) => warning(index, one)))
              : el("p", { class: "note" }, "No warnings."),
          ),
          parts,
          isTimed
            ? el("section", {}, el("h2", {}, `Time by phase: ${duration(total(index))} in all`), phases, overTime)
            : el("p", { class: "note" }, index.phase_steps.length ? "The steps have no timers." : "No step is recorded yet."),
        ),
        el(
          "div",
          { class: "side" },
          el(
            "div",
            { class: "charts" },
            charts.map(([names, chart]) =>
              el(
                "figure",
                { "data-metric": names.length > 1 ? "accuracies" : names[0] },
                el(
                  "figcaption",
                  {},
                  report.link(
                    { view: "curves", metrics: names.join(",") },
                    runs.explained(index, names[0]),
                    names.length > 1 ? `validation accuracy of ${names.length} sets` : names[0],
                  ),
                ),
                el("div", { class: "note meaning" }, runs.meaning(index, names[0])),
                chart,
              ),
            ),
          ),
        ),
      );
      for (const [names, chart] of charts) {
        await runs.drawMetrics(chart, index, names, { height: 180 });
        if (!isWanted()) return;
      }
      if (isTimed) {
        await drawPhases(phases, index);
        await drawPhasesOverTime(overTime, index);
      }
    },
    keys: () => [],
  };
})();
