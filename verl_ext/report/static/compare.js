// Several runs: their numbers with differences to the first one, and where their configurations differ.
"use strict";

(() => {
  const { el, change, main } = report;
  const { number } = runs;

  const runHead = (index) =>
    index.runs.map((run, place) =>
      el("th", {}, el("i", { class: "swatch", style: { background: runs.colour(place) } }), run.name),
    );

  const withDifference = (value, difference, place) =>
    el(
      "td",
      { class: "number" },
      value === null ? "–" : number(value),
      place > 0 && difference
        ? el("span", { class: "note" }, ` (${difference > 0 ? "+" : "−"}${number(Math.abs(difference))})`)
        : "",
    );

  const row = (name, values) => el("tr", {}, el("td", {}, name), values);
  const text = (values) => values.map((value) => el("td", {}, value));
  const state = ({ finished, step, of }) =>
    `${finished ? "finished" : "not finished"}, step ${step}${of && of !== step ? ` of ${of}` : ""}`;

  const table = (id, head, body) =>
    el(
      "div",
      { class: "scroll" },
      el("table", { id }, el("thead", {}, el("tr", {}, el("th", {}), head)), el("tbody", {}, body)),
    );

  runs.views.numbers = {
    title: "numbers",
    draw: (params, index) => {
      main.className = "stack";
      main.replaceChildren(
        el("p", { class: "note" }, `In parentheses: the difference to ${index.runs[0].name}.`),
        table("numbers", runHead(index), [
          row("recipe", text(index.runs.map((run) => run.recipe))),
          row("state", text(index.runs.map((run) => state(run.state)))),
          ...index.numbers.map(([name, values, differences]) =>
            row(
              name.replaceAll("_", " "),
              values.map((value, place) => withDifference(value, differences[place], place)),
            ),
          ),
        ]),
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
