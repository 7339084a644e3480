// Several runs: their numbers with differences to the first one, and where their configurations differ.
"use strict";

(() => {
  const { el, change, main } = report;
  const { number } = runs;

  const runHead = (index) =>
    index.runs.map((run, place) =>
      el("th", {}, el("i", { class: "swatch", style: { background: runs.colour(runs.placeOf(index, place)) } }), run.name),
    );

  const row = (name, values) => el("tr", {}, el("td", {}, name), values);
  const text = (values) => values.map((value) => el("td", {}, value));
  const state = (one) => {
    const [badge, , sentence] = runs.stateOf(one);
    const steps = `${badge}, step ${one.step}${one.of && one.of !== one.step ? ` of ${one.of}` : ""}`;
    return el("span", { tip: [sentence] }, steps);
  };

  const table = (id, head, body) =>
    el(
      "div",
      { class: "scroll" },
      el("table", { id }, el("thead", {}, el("tr", {}, el("th", {}), head)), el("tbody", {}, body)),
    );

  // ------------------------------ seeds ------------------------------

  // Values of a group's runs: mean, range, and whether every run has one. Null if none has.
  function summary(values) {
    const known = values.filter((value) => value !== null && value !== undefined);
    if (known.length === 0) return null;
    const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
    return { mean, low: Math.min(...known), high: Math.max(...known), known: known.length, all: values.length };
  }

  // How many runs have a value is said if not all.
  function meanAndRange(one, show) {
    if (one === null) return "–";
    const range = one.known > 1 ? ` (${show(one.low)} to ${show(one.high)})` : "";
    return `${show(one.mean)}${range}${one.known < one.all ? `, ${one.known} of ${one.all} runs` : ""}`;
  }

  // The mean of those that reached an accuracy says nothing about the others, so a ratio needs all runs of both groups.
  const areComplete = (...groups) => groups.every((one) => one !== null && one.known === one.all);
  const ratioTo = (first, one) => (areComplete(first, one) && first.mean > 0 ? one.mean / first.mean : null);
  const doOverlap = (a, b) => a.low <= b.high && b.low <= a.high;

  const points = (name) => name.startsWith("val_accuracy");
  const shownNumber = (name) => (value) =>
    value === null ? "–" : points(name) ? `${(100 * value).toFixed(1)} %` : name === "seconds" ? runs.duration(value) : number(Number.isInteger(value) ? value : Number(value.toPrecision(4)));
  const shownDifference = (name, difference) =>
    `${difference > 0 ? "+" : "−"}${points(name) ? `${(100 * Math.abs(difference)).toFixed(1)} points` : name === "seconds" ? runs.duration(Math.abs(difference)) : number(Math.abs(difference))}`;

  // The name of a number with its meaning as a tip.
  const named = (index, name, where = "") =>
    el(
      "span",
      { tip: [Object.hasOwn(index.number_meanings, name) ? index.number_meanings[name] : "of summary.json; no glossary describes it"] },
      `${name.replaceAll("_", " ")}${where}`,
    );

  const numberRows = (index, rows, withDifferences) =>
    rows.map(([name, values, differences]) =>
      row(
        named(index, name),
        values.map((value, place) =>
          el(
            "td",
            { class: "number" },
            shownNumber(name)(value),
            withDifferences && place > 0 && differences[place]
              ? el("span", { class: "note" }, ` (${shownDifference(name, differences[place])})`)
              : "",
          ),
        ),
      ),
    );

  // ------------------------------ what an accuracy cost ------------------------------

  const cost = (found, first) => {
    if (found === null) return el("td", { class: "note" }, "not reached");
    const [rollouts, seconds] = found;
    const ratio = first && first !== found && first[0] && rollouts ? ` ×${(rollouts / first[0]).toFixed(2)}` : "";
    return el(
      "td",
      { class: "number" },
      rollouts === null ? "–" : `${number(rollouts)} rollouts`,
      ratio ? el("strong", {}, ratio) : "",
      seconds === null ? "" : el("span", { class: "note" }, `, ${runs.duration(seconds)}`),
    );
  };

  const levelTable = (index) =>
    table(
      "levels",
      runHead(index),
      index.levels.map(([level, found]) =>
        row(
          `${(100 * level).toFixed(0)} %`,
          found.map((one) => cost(one, found[0])),
        ),
      ),
    );

  const costOf = (groups, found, part) => groups.map(([, places]) => summary(places.map((place) => found[place]?.[part] ?? null)));
  const numberOf = (groups, values) => groups.map(([, places]) => summary(places.map((place) => values[place])));

  function costCell(one, first, what) {
    const show = what === "seconds" ? runs.duration : (value) => number(Math.round(value));
    const ratio = one === first ? null : ratioTo(first, one);
    return el("td", {}, meanAndRange(one, show), ratio === null ? "" : el("strong", {}, ` ×${ratio.toFixed(2)}`));
  }

  function numberCell(one, first, name) {
    const difference = points(name) && one !== first && areComplete(first, one) ? one.mean - first.mean : 0;
    return el(
      "td",
      {},
      meanAndRange(one, shownNumber(name)),
      difference ? el("span", { class: "note" }, ` (${shownDifference(name, difference)})`) : "",
    );
  }

  const groupTable = (index, groups) =>
    table(
      "groups",
      groups.map(([name]) => el("th", {}, name)),
      [
        ...index.levels.flatMap(([level, found]) =>
          ["rollouts", "seconds"].map((what, part) => {
            const costs = costOf(groups, found, part);
            return row(
              `${what} to ${(100 * level).toFixed(0)} %`,
              costs.map((one) => costCell(one, costs[0], what)),
            );
          }),
        ),
        ...index.common_numbers.map(([name, values]) => {
          const all = numberOf(groups, values);
          return row(
            named(index, name, ` at step ${index.common_step}`),
            all.map((one) => numberCell(one, all[0], name)),
          );
        }),
      ],
    );

  // A single run has no range.
  function spread(groups, place, first, one) {
    const single = [0, place].filter((own) => groups[own][1].length === 1).map((own) => groups[own][0]);
    if (single.length) return `${single.join(" and ")} ${single.length > 1 ? "are single runs" : "is a single run"}`;
    return doOverlap(first, one) ? "their ranges overlap" : "their ranges do not overlap";
  }

  // A group against the first one: rollouts to the highest accuracy that all their runs reached, and final accuracy.
  function verdict(index, groups, place) {
    const [name, base] = [groups[place][0], groups[0][0]];
    const costs = index.levels
      .map(([level, found]) => [level, costOf(groups, found, 0)])
      .findLast(([, own]) => ratioTo(own[0], own[place]) !== null);
    const found = index.common_numbers.find(([one]) => one === "val_accuracy_after");
    const accuracies = found ? numberOf(groups, found[1]) : [];
    const sentences = [];
    if (costs) {
      const [level, own] = costs;
      sentences.push(
        `${name} needs ${ratioTo(own[0], own[place]).toFixed(2)} times the rollouts of ${base} to reach ${(100 * level).toFixed(0)} %; ${spread(groups, place, own[0], own[place])}.`,
      );
    }
    if (accuracies.length && areComplete(accuracies[0], accuracies[place])) {
      const difference = 100 * (accuracies[place].mean - accuracies[0].mean);
      sentences.push(
        `At step ${index.common_step} its accuracy is ${Math.abs(difference).toFixed(1)} points ${difference < 0 ? "lower" : "higher"}${costs ? "" : ` than that of ${base}`}; ${spread(groups, place, accuracies[0], accuracies[place])}.`,
      );
    }
    return sentences.length ? el("li", {}, costs ? "" : `${name}: `, sentences.join(" ")) : "";
  }

  const verdicts = (index, groups) =>
    el(
      "ul",
      { id: "verdicts" },
      groups.slice(1).map((_, place) => verdict(index, groups, place + 1)),
    );

  const part = (title, ...inner) => el("section", {}, el("h2", {}, title), inner);

  runs.views.numbers = {
    title: "numbers",
    draw: (params, index) => {
      const groups = seeds.groupsOf(index);
      main.className = "stack";
      main.replaceChildren(
        index.levels.length
          ? part(
              "What an accuracy cost: rollouts and seconds of training until the first validation that reached it",
              levelTable(index),
            )
          : el("p", { class: "note" }, "No run has reached an accuracy that others did not begin with."),
        groups
          ? part(
              "Seeds: mean, and lowest to highest",
              verdicts(index, groups),
              el("p", { class: "note" }, `× and points: relative to ${groups[0][0]}, where all runs of both have the number.`),
              groupTable(index, groups),
            )
          : "",
        part(
          `Up to step ${index.common_step}, which all runs have reached`,
          el("p", { class: "note" }, `In parentheses: the difference to ${index.runs[0].name}.`),
          table("common", runHead(index), numberRows(index, index.common_numbers, true)),
        ),
        part(
          "Whole runs",
          table("numbers", runHead(index), [
            row("recipe", text(index.runs.map((run) => run.recipe))),
            row("state", text(index.runs.map((run) => state(run.state)))),
            ...numberRows(index, index.numbers, false),
          ]),
        ),
      );
    },
  };

  let search = null;
  runs.views.configuration = {
    title: "configuration",
    draw: (params, index, _isWanted, isShown) => {
      const wanted = (params.search ?? "").toLowerCase();
      const rows = index.configuration.filter(([key, values]) =>
        `${key} ${values.join(" ")}`.toLowerCase().includes(wanted),
      );
      if (!isShown || search === null) {
        search = el("input", {
          name: "search",
          placeholder: "search keys and values",
          autocomplete: "off",
          oninput: () => change({ search: search.value }, { replace: true }),
        });
        main.className = "stack";
        main.replaceChildren(
          el("div", { class: "bar" }, search, el("span", { class: "found", role: "status" })),
          el("div", { id: "differences" }),
        );
      }
      if (search !== document.activeElement) search.value = params.search ?? "";
      main.querySelector(".found").textContent =
        `${rows.length} of ${index.configuration.length} keys that differ (of ${index.num_keys})`;
      main.querySelector("#differences").replaceChildren(
        table(
          "configuration",
          runHead(index),
          rows.map(([key, values]) =>
            row(
              el("code", {}, key),
              values.map((value) => el("td", { class: value === values[0] ? null : "other" }, el("code", {}, value))),
            ),
          ),
        ),
      );
    },
    keys: () => [
      { keys: ["/"], text: "search", run: () => search.focus() },
      { keys: ["Escape"], text: "drop the search", run: () => change({ search: null }, { replace: true }) },
    ],
  };
})();
