// Keyboard: each view has its keys, `?` shows them. The header with its buttons is also here.
"use strict";

(() => {
  const { el, address, change } = report;
  const everywhere = [
    { keys: ["t"], text: "light or dark", run: toggleTheme },
    { keys: ["?"], text: "this help", run: showHelp },
  ];
  let own = [];
  const help = el("dialog", { id: "help", "aria-label": "Keyboard" });
  document.body.append(help);

  const isDark = () => {
    const { theme } = address();
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };

  function toggleTheme() {
    change({ theme: isDark() ? "light" : "dark" }, { replace: true });
  }

  const LABELS = { ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc" };

  function showHelp() {
    if (help.open) return help.close();
    help.replaceChildren(
      el("h2", {}, "Keyboard"),
      el(
        "dl",
        {},
        [...own, ...everywhere].flatMap((entry) => [
          el(
            "dt",
            {},
            entry.keys.map((key) => el("kbd", {}, LABELS[key] ?? key)),
          ),
          el("dd", {}, entry.text),
        ]),
      ),
      el(
        "p",
        { class: "note" },
        "The address of this page always leads back to exactly this view: copy it to share it.",
      ),
      el("button", { onclick: () => help.close() }, "Close"),
    );
    help.showModal();
    return undefined;
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (help.open) {
      if (event.key === "?") help.close();
      return;
    }
    const field = event.target.closest?.("input, select, textarea");
    if (field) {
      if (event.key === "Escape" || event.key === "Enter") {
        field.blur();
        event.preventDefault();
      }
      return;
    }
    // Enter and space press what has the focus.
    if (event.target.closest?.("button, a, summary") && [" ", "Enter"].includes(event.key)) return;
    const entry = [...own, ...everywhere].find(({ keys }) => keys.includes(event.key));
    if (entry) {
      event.preventDefault();
      entry.run();
    }
  });

  // [{keys: ["j", "ArrowDown"], text: "next row", run}]
  report.setKeys = (entries) => {
    own = entries;
  };

  // Crumbs: [[text, params or null]]; extras: elements.
  report.setHeader = (crumbs, about, extras = []) => {
    const trail = crumbs.flatMap(([text, params], place) => [
      place > 0 ? el("span", { class: "divider" }, "›") : null,
      params
        ? el("a", { href: queryOf(params), onclick: (event) => follow(event, params) }, text)
        : el("strong", {}, text),
    ]);
    document
      .getElementById("header")
      .replaceChildren(
        el("nav", { "aria-label": "Where you are" }, trail),
        el("span", { class: "about", tip: about }, about.at(0) ?? ""),
        el("span", { class: "spring" }),
        ...extras,
        el(
          "button",
          { id: "theme", onclick: toggleTheme, title: "light or dark (t)" },
          isDark() ? "☀ light" : "☾ dark",
        ),
        el("button", { id: "show-help", onclick: showHelp, title: "keyboard (?)" }, "? keys"),
      );
  };

  const queryOf = (params) => {
    const { theme } = address();
    const kept = Object.entries({ theme, ...params }).filter(
      ([, value]) => value !== undefined && value !== null && value !== "",
    );
    return `?${new URLSearchParams(kept)}`;
  };

  // A plain click stays on the page; with Ctrl or the middle button the browser opens the address in a new tab.
  const follow = (event, params) => {
    event.stopPropagation();
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    report.go(params);
  };

  report.link = (params, options, ...children) =>
    el("a", { ...options, href: queryOf(params), onclick: (event) => follow(event, params) }, ...children);
})();
