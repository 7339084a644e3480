// The configuration: what was chosen for this run first, then all; and the versions that the folder tells.
"use strict";

(() => {
  const { el, load, change, address, main } = report;
  let parts = null;

  async function copy(button, text) {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      // Not every browser lets a file do that: then the text is selected, for Ctrl+C.
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "selected: press Ctrl+C";
    }
  }

  function build(index) {
    const state = { rows: [] };
    const table = report.table({
      label: "Configuration",
      columns: [
        { name: "key", width: "minmax(18rem, 2fr)" },
        { name: "value", width: "minmax(12rem, 3fr)" },
        {
          name: "set by",
          width: "8rem",
          tip: ["command line, this project's experiment, backend or recipe file, or verl's default"],
        },
      ],
      sort: null,
      onsort: () => {},
      cells: (place) => {
        const [key, value, origin] = state.rows[place];
        return [el("code", {}, key), el("code", { tip: value.length > 60 ? [value] : null }, value), origin];
      },
      open: () => {},
    });
    const search = el("input", {
      name: "search",
      placeholder: "search keys and values",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => change({ search: search.value }, { replace: true }),
    });
    const chosen = el(
      "button",
      {
        id: "only-chosen",
        onclick: () => change({ only: address().only === "chosen" ? null : "chosen" }, { replace: true }),
      },
      "not verl's defaults",
    );
    const found = el("span", { class: "found", role: "status" });
    const versions = Object.entries(index.versions).map(([name, version]) => `${name} ${version}`);
    main.className = "fill";
    main.replaceChildren(
      el(
        "p",
        { id: "command" },
        "started with: ",
        el("code", {}, index.command),
        " ",
        el("button", { id: "copy", onclick: (event) => copy(event.target, index.command) }, "copy"),
      ),
      el(
        "p",
        { class: "note", id: "versions" },
        versions.length ? `versions: ${versions.join(", ")}` : "No versions were recorded.",
      ),
      el("div", { class: "bar" }, search, chosen, found),
      table.element,
    );
    return { state, table, search, chosen, found };
  }

  runs.views.configuration = {
    title: "configuration",
    draw: async (params, index, isWanted, isShown) => {
      const rows = await load("config");
      if (!isWanted()) return;
      if (!isShown || parts === null) parts = build(index);
      const wanted = (params.search ?? "").toLowerCase();
      parts.state.rows = rows.filter(
        ([key, value, origin]) =>
          (params.only !== "chosen" || origin !== "default") && `${key} ${value}`.toLowerCase().includes(wanted),
      );
      if (parts.search !== document.activeElement) parts.search.value = params.search ?? "";
      parts.chosen.setAttribute("aria-pressed", String(params.only === "chosen"));
      parts.found.textContent = `${parts.state.rows.length} of ${rows.length} keys`;
      parts.table.show(parts.state.rows.length, 0);
    },
    keys: () => [
      ...report.tableKeys(() => parts.table),
      { keys: ["/"], text: "search", run: () => parts?.search.focus() },
      {
        keys: ["Escape"],
        text: "drop the filters",
        run: () => change({ search: null, only: null }, { replace: true }),
      },
    ],
  };
})();
