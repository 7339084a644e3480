// Tokens of a text: shaded by log-prob, coloured by how far training moved them from the reference, numbers on hover.
"use strict";

(() => {
  const { el } = report;
  const { tokenText, logProb, number, arrow } = trace;
  const DARKEST = 5; // nats at which the shade is full
  const STRONGEST = 1; // nats of difference at which the colour is full

  const share = (value, full) => `${Math.round(100 * Math.min(1, Math.abs(value) / full))}%`;

  // item: {id, place, role, before, after, reference, notes: [text], advantage, current, given, onclick}
  // `role`: prompt, golden, golden mattered, action   `given`: measured for the whole prompt, and not around an update
  function span(item) {
    const tuned = item.after ?? item.before ?? null;
    const difference =
      tuned === null || item.reference === null || item.reference === undefined ? null : tuned - item.reference;
    const known = tuned !== null;
    const style = {};
    if (known) style["--unlikely"] = share(tuned, DARKEST);
    if (difference !== null) style["--moved"] = share(difference, STRONGEST);
    const classes = ["token", item.role];
    if (known) classes.push("known");
    if (difference !== null) classes.push(difference >= 0 ? "rose" : "fell");
    if (item.advantage) classes.push(item.advantage > 0 ? "up" : "down");
    if (item.current) classes.push("current");
    const text = tokenText(item.id);
    // A line break alone would be invisible, and there is nothing to point at.
    const shown = text.includes("\n") && (known || item.advantage) ? text.replaceAll("\n", "⏎\n") : text;
    const tip = () => [
      `token ${JSON.stringify(item.id === null ? "not seen yet" : text)}${item.id === null ? "" : ` (id ${item.id})`}`,
      ...(item.notes ?? []),
      ...(known
        ? [
            ...(item.before === null || item.before === undefined
              ? []
              : [`before the update: ${logProb(item.before)}`]),
            ...(item.after === null || item.after === undefined
              ? []
              : [`${item.given ? "policy before the update" : "after the update"}: ${logProb(item.after)}`]),
            `reference: ${logProb(item.reference)}`,
            ...(difference === null
              ? []
              : [`tuned − reference: ${difference >= 0 ? "+" : ""}${number(difference, 3)} nats`]),
          ]
        : ["log-prob not known"]),
    ];
    return el(
      "span",
      {
        class: classes.join(" "),
        style,
        tip,
        "data-place": item.place,
        tabindex: known || item.onclick ? "0" : null,
        role: item.onclick ? "button" : null,
        onclick: item.onclick,
        onkeydown: item.onclick ? (event) => event.key === "Enter" && (event.stopPropagation(), item.onclick()) : null,
      },
      item.advantage ? el("sup", {}, arrow(item.advantage)) : null,
      shown,
    );
  }

  trace.tokens = (items, label) => el("pre", { class: "tokens", "aria-label": label }, items.map(span));

  trace.tokensLegend = () =>
    el(
      "p",
      { class: "legend" },
      el("span", { class: "token known sample", style: { "--unlikely": "0%" } }, "likely"),
      el("span", { class: "token known sample", style: { "--unlikely": "100%" } }, "log-prob −5 or less"),
      el(
        "span",
        { class: "token known rose sample", style: { "--unlikely": "0%", "--moved": "100%" } },
        "above the reference",
      ),
      el("span", { class: "token known fell sample", style: { "--unlikely": "0%", "--moved": "100%" } }, "below it"),
      el("span", { class: "token sample" }, "not measured"),
    );

  // What the entries of a problem say about the golden token that comes `k` before the end, newest last.
  trace.evidenceByK = (problem, index) => {
    const found = new Map();
    for (const entry of problem.entries) {
      if (!entry.fits) continue;
      const row = index.rows[entry.entry];
      const k = row[trace.ROW.k];
      if (!found.has(k)) found.set(k, []);
      found.get(k).push({ row, entry, teacher: entry.actions.find((action) => action.is_teacher) });
    }
    return found;
  };

  // Items for the golden solution's tokens before `until`, with their place in the solution; `open(row)` is what a click
  // on a token does.
  trace.solutionItems = (problem, index, { until = Infinity, open = null } = {}) => {
    const { ids } = problem.solution;
    const byK = trace.evidenceByK(problem, index);
    return ids.slice(0, until).map((id, offset) => {
      const k = ids.length - offset;
      const evidence = byK.get(k) ?? [];
      const newest = evidence.at(-1);
      const labelled = evidence.filter(({ entry }) => entry.actions.some((action) => action.advantage !== 0));
      const pushed = labelled.at(-1)?.teacher.advantage ?? 0;
      const notes = [`token ${offset + 1} of ${ids.length} of the golden solution; the teacher when k = ${k}`];
      if (newest)
        notes.push(
          `tried in ${evidence.length} state${evidence.length > 1 ? "s" : ""}, newest at step ${newest.row[trace.ROW.step]}`,
        );
      if (labelled.length)
        notes.push(
          `it mattered: ${labelled.length} time${labelled.length > 1 ? "s" : ""} a token here was better or worse than the others`,
        );
      return {
        id,
        place: offset,
        role: labelled.length ? "golden mattered" : "golden",
        before: newest?.teacher.before ?? null,
        after: newest ? (newest.teacher.trainer ?? newest.teacher.engine) : null,
        reference: newest?.teacher.reference ?? null,
        advantage: pushed,
        notes,
        onclick: open && newest ? () => open((labelled.at(-1) ?? newest).row) : null,
      };
    });
  };
})();
