// Curves of one run or several: metrics by group with a search, chosen ones, smoothing and axis in the address.
"use strict";

(() => {
  const { el, change, address, main } = report;
  const seen = runs.whenSeen();
  let parts = null;

  const weightOf = (params) => Math.min(0.99, Math.max(0, Number(params.smooth) || 0));
  const axisOf = (params) => (params.x in runs.AXES ? params.x : "step");

  function chosenOf(params, index) {
    if (params.metrics === undefined) return index.headlines;
    return params.metrics.split(",").filter((name) => runs.groupOf(index, name) !== undefined);
  }

  const unknownOf = (params, index) =>
    (params.metrics ?? "").split(",").filter((name) => name && name !== "none" && !runs.groupOf(index, name));

  function setChosen(names) {
    // An empty choice is also a choice.
    change({ view: "curves", metrics: names.join(",") || "none" }, { replace: true });
  }

  const toggle = (index, name) => {
    const chosen = chosenOf(address(), index);
    setChosen(chosen.includes(name) ? chosen.filter((other) => other !== name) : [...chosen, name]);
  };

  function build() {
    const search = el("input", {
      name: "search",
      placeholder: "search metrics",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => change({ search: search.value }, { replace: true }),
    });
    const smooth = el("input", {
      name: "smooth",
      type: "range",
      min: 0,
      max: 0.99,
      step: 0.01,
      oninput: () => change({ smooth: smooth.value === "0" ? null : smooth.value }, { replace: true }),
    });
    const weight = el("output", {});
    const axes = Object.entries({ step: "steps", seconds: "seconds", rollouts: "rollouts" }).map(([name, text]) =>
      el(
        "button",
        { "data-axis": name, onclick: () => change({ x: name === "step" ? null : name }, { replace: true }) },
        text,
      ),
    );
    const log = el(
      "button",
      { id: "log", onclick: () => change({ log: address().log ? null : 1 }, { replace: true }) },
      "log scale",
    );
    const legend = el("div", { class: "legend", id: "runs" });
    const found = el("span", { class: "found", role: "status" });
    const list = el("div", { class: "metrics" });
    const charts = el("div", { class: "charts" });
    const bar = el(
      "div",
      { class: "bar" },
      el("label", {}, "smoothing", smooth, weight),
      el("span", { class: "choices", role: "group", "aria-label": "horizontal axis" }, axes),
      log,
      legend,
    );
    main.className = "picker";
    main.replaceChildren(
      el(
        "aside",
        { "aria-label": "Metrics" },
        // On a narrow page the list would come before the first chart.
        el(
          "details",
          { open: matchMedia("(min-width: 50rem)").matches, id: "picker" },
          el("summary", {}, "metrics"),
          el("div", { class: "bar" }, search, found),
          list,
        ),
      ),
      el("div", { class: "side" }, bar, charts),
    );
    return { search, smooth, weight, axes, log, legend, found, list, charts, figures: new Map(), open: new Map() };
  }

  function drawList(params, index, chosen) {
    const wanted = (params.search ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const isWanted = (name) => wanted.every((word) => name.toLowerCase().includes(word));
    let count = 0;
    let all = 0;
    const groups = Object.entries(index.groups).flatMap(([group, names]) => {
      const own = names.filter(isWanted);
      all += names.length;
      count += own.length;
      if (own.length === 0) return [];
      const isOpen = wanted.length > 0 || (parts.open.get(group) ?? own.some((name) => chosen.includes(name)));
      const details = el(
        "details",
        {
          open: isOpen,
          ontoggle: () => wanted.length === 0 && parts.open.set(group, details.open),
        },
        el("summary", {}, group, el("span", { class: "note" }, ` ${own.length}`)),
        own.map((name) =>
          el(
            "label",
            runs.explained(index, name),
            el("input", {
              type: "checkbox",
              name: "metric",
              value: name,
              checked: chosen.includes(name),
              onchange: () => toggle(index, name),
            }),
            name.startsWith(`${group}/`) ? name.slice(group.length + 1) : name,
          ),
        ),
      );
      return [details];
    });
    const focused = document.activeElement?.name === "metric" ? document.activeElement.value : null;
    parts.list.replaceChildren(...groups);
    // The rows are new elements: the keyboard focus stays where it was.
    if (focused !== null)
      [...parts.list.querySelectorAll("input")].find((box) => box.value === focused)?.focus({ preventScroll: true });
    parts.found.textContent = `${count} of ${all}`;
  }

  function drawCharts(params, index, chosen) {
    for (const [name, figure] of parts.figures) {
      if (chosen.includes(name)) continue;
      figure.remove();
      parts.figures.delete(name);
    }
    for (const name of chosen) {
      if (!parts.figures.has(name)) {
        parts.figures.set(
          name,
          el(
            "figure",
            { "data-metric": name },
            el(
              "figcaption",
              {},
              el("code", runs.explained(index, name), name),
              el(
                "button",
                { class: "plain", title: "remove", "aria-label": `remove ${name}`, onclick: () => toggle(index, name) },
                "×",
              ),
            ),
            el("div", { class: "note meaning" }, runs.meaning(index, name)),
            el("div", { class: "chart" }),
          ),
        );
      }
      const figure = parts.figures.get(name);
      parts.charts.append(figure);
      const chart = figure.querySelector(".chart");
      seen.mark(chart, () =>
        runs.drawMetric(chart, index, name, {
          axis: axisOf(params),
          weight: weightOf(params),
          log: params.log === "1",
        }),
      );
    }
    parts.charts.querySelector("p")?.remove();
    const unknown = unknownOf(params, index);
    const text = unknown.length
      ? `This run has no metric ${unknown.join(", ")}.${chosen.length ? "" : " Choose others from the list."}`
      : chosen.length
        ? ""
        : "No metric is chosen: choose some from the list.";
    if (text) parts.charts.prepend(el("p", { class: unknown.length ? "note error" : "note" }, text));
  }

  const steps = [0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98];
  const smoother = (by) => () => {
    const now = weightOf(address());
    const next = by > 0 ? steps.find((step) => step > now + 1e-9) : steps.findLast((step) => step < now - 1e-9);
    if (next !== undefined) change({ smooth: next || null }, { replace: true });
  };

  runs.views.curves = {
    title: "curves",
    draw: (params, index, _isWanted, isShown) => {
      if (!isShown || parts === null) parts = build();
      const chosen = chosenOf(params, index);
      if (parts.search !== document.activeElement) parts.search.value = params.search ?? "";
      parts.smooth.value = weightOf(params);
      parts.weight.textContent = weightOf(params).toFixed(2);
      for (const button of parts.axes)
        button.setAttribute("aria-pressed", String(button.dataset.axis === axisOf(params)));
      parts.log.setAttribute("aria-pressed", String(params.log === "1"));
      if (index.runs)
        parts.legend.replaceChildren(
          ...index.runs.map((run, place) =>
            el("span", {}, el("i", { class: "swatch", style: { background: runs.colour(runs.placeOf(index, place)) } }), run.name),
          ),
          seeds.groupsOf(index) === null ? "" : el("span", { class: "note" }, "thick: the mean of the runs of a configuration"),
        );
      drawList(params, index, chosen);
      drawCharts(params, index, chosen);
    },
    keys: () => [
      { keys: ["/"], text: "search metrics", run: () => {
          document.getElementById("picker").open = true;
          parts.search.focus();
        },
      },
      { keys: ["]"], text: "smoother", run: smoother(1) },
      { keys: ["["], text: "less smooth", run: smoother(-1) },
      {
        keys: ["x"],
        text: "next horizontal axis",
        run: () => {
          const names = Object.keys(runs.AXES);
          const next = names[(names.indexOf(axisOf(address())) + 1) % names.length];
          change({ x: next === "step" ? null : next }, { replace: true });
        },
      },
      {
        keys: ["Escape"],
        text: "drop search and choice",
        run: () => change({ metrics: null, search: null, smooth: null, x: null, log: null }, { replace: true }),
      },
    ],
  };
})();
