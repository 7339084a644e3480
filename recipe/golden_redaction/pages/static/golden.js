// The golden viewer: a list of tasks, and one task with its grids, its solution, and what running it gave.
"use strict";

(() => {
  const { el, load, go, change, address, main } = report;

  const isRight = (row) => row.right !== null && row.right === row.pairs;
  const outcome = (row) =>
    row.right === null
      ? el("span", { class: "status" }, row.has_solution ? "not run" : "no solution")
      : el(
          "span",
          { class: `status ${isRight(row) ? "ok" : "bad"}` },
          `${isRight(row) ? "✓" : "✗"} ${row.right} of ${row.pairs} pairs`,
        );
  const SORTS = { level: "level", tokens: "tokens", lines: "lines" };

  function choose(index, params) {
    const wanted = (params.filter ?? "").toLowerCase();
    const rows = index.tasks.filter((row) => row.task.includes(wanted) && (params.only !== "wrong" || !isRight(row)));
    if (!params.sort) return rows;
    const [key, sign] = params.sort.startsWith("-") ? [params.sort.slice(1), -1] : [params.sort, 1];
    const column = SORTS[key] ?? "task";
    return rows.toSorted(
      (a, b) =>
        (a[column] === null) - (b[column] === null) ||
        sign * (a[column] < b[column] ? -1 : a[column] > b[column] ? 1 : 0),
    );
  }

  const listAddress = () => {
    const { filter, only, sort } = address();
    return { filter, only, sort };
  };
  const open = (task) => go({ ...listAddress(), numbers: address().numbers, task });

  // ------------------------------ the list ------------------------------

  let parts = null;
  function build() {
    const state = { rows: [] };
    const table = report.table({
      label: "Tasks",
      columns: [
        { name: "task", width: "9rem", sort: "task" },
        { name: "level", width: "6rem", sort: "level", tip: ["from 1, easy; by golden_order.py"] },
        { name: "the solution on its pairs", width: "14rem" },
        { name: "lines", width: "6rem", sort: "lines" },
        { name: "golden tokens", width: "9rem", sort: "tokens", tip: ["what redaction hides; needs --tokenizer"] },
      ],
      sort: null,
      onsort: (sort) => change({ sort, row: null }),
      cells: (place) => {
        const row = state.rows[place];
        return [el("code", {}, row.task), row.level ?? "–", outcome(row), row.lines ?? "–", row.tokens ?? "–"].map(
          (cell) => (typeof cell === "number" ? String(cell) : cell),
        );
      },
      open: (place) => open(state.rows[place].task),
      onselect: (row) => history.replaceState(null, "", `?${new URLSearchParams({ ...address(), row })}`),
    });
    const input = el("input", {
      name: "filter",
      placeholder: "id or part",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => change({ filter: input.value, row: null }, { replace: true }),
    });
    const wrong = el(
      "button",
      { id: "only-wrong", onclick: () => change({ only: address().only === "wrong" ? null : "wrong", row: null }) },
      "✗ not all pairs right",
    );
    const found = el("span", { class: "found", role: "status" });
    const bar = el(
      "form",
      { class: "bar", onsubmit: (event) => event.preventDefault() },
      el("label", {}, "task", input),
      wrong,
      found,
    );
    return { state, table, input, wrong, found, bar };
  }

  function drawList(params, index, isShown) {
    if (!isShown || parts === null) {
      parts = build();
      main.className = "fill";
      main.replaceChildren(parts.bar, parts.table.element);
    }
    const { state, table, input, wrong, found } = parts;
    state.rows = choose(index, params);
    if (input !== document.activeElement) input.value = params.filter ?? "";
    wrong.setAttribute("aria-pressed", String(params.only === "wrong"));
    found.textContent = `${state.rows.length} of ${index.tasks.length} tasks`;
    report.setHeader([["Golden solutions", null]], index.about);
    report.setKeys([
      ...report.tableKeys(() => parts.table),
      { keys: ["/"], text: "filter by task", run: () => input.focus() },
      { keys: ["Escape"], text: "drop all filters", run: () => go({}) },
    ]);
    table.show(state.rows.length, Number(params.row ?? 0), params.sort ?? null);
    if (!isShown && document.activeElement === document.body) table.element.focus({ preventScroll: true });
  }

  // ------------------------------ one task ------------------------------

  function drawnPair({ name, input, output, result }) {
    const made =
      result === null
        ? ""
        : result.grid
          ? report.grid(result.grid, "output of the solution", { expected: output })
          : el("div", { class: "note" }, "no output");
    return el(
      "div",
      { class: "pair", "data-pair": name },
      report.grid(input, `${name}: input`),
      el("span", { class: "to" }, "→"),
      report.grid(output, "expected"),
      made,
      result === null
        ? ""
        : el(
            "div",
            { class: "said" },
            el("span", { class: `status ${result.status === "ok" ? "ok" : "bad"}` }, result.status),
            result.detail ? el("p", {}, result.detail) : "",
            result.printed ? el("pre", {}, result.printed) : "",
          ),
    );
  }

  async function drawTask(params, index, isWanted) {
    const rows = choose(index, params);
    const row = index.tasks.find((one) => one.task === params.task);
    if (!row) throw new Error(`there is no task ${params.task} on this page`);
    const task = await load(`task-${row.task}`);
    if (!isWanted()) return;
    const facts = [
      row.level === null ? "" : `level ${row.level} · `,
      row.lines === null ? "" : `${row.lines} lines · `,
      row.tokens === null ? "" : `${row.tokens} golden tokens · `,
      outcome(row),
    ];
    main.className = "two";
    main.replaceChildren(
      el(
        "div",
        { class: "side" },
        el("p", { class: "facts" }, facts),
        task.code === null
          ? el("p", { class: "note" }, "This task has no golden solution.")
          : el(
              "pre",
              { class: "code", "aria-label": "golden solution" },
              task.code.map(([kind, text]) => el("span", { class: kind || null }, text)),
            ),
      ),
      el("div", { class: "side" }, task.pairs.map(drawnPair)),
    );
    report.setHeader(
      [
        ["Golden solutions", listAddress()],
        [row.task, null],
      ],
      index.about,
      [report.numbersButton()],
    );
    const other = (by) => () => {
      const next = rows[rows.indexOf(row) + by];
      if (next) change({ task: next.task }, { replace: true });
    };
    report.setKeys([
      { keys: ["j", "ArrowRight", "l"], text: "next task", run: other(1) },
      { keys: ["k", "ArrowLeft", "h"], text: "task before", run: other(-1) },
      report.numbersKey,
      { keys: ["Escape"], text: "back to the list", run: () => go(listAddress()) },
    ]);
  }

  let shown = null;
  report.start({
    draw: async (params, index, isWanted) => {
      const name = params.task === undefined ? "list" : "task";
      // Set before anything is awaited: the reader may have gone back by then.
      const isShown = shown === name;
      shown = name;
      if (name === "list") drawList(params, index, isShown);
      else await drawTask(params, index, isWanted);
    },
  });
})();
