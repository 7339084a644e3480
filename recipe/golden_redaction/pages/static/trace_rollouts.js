// An action's rollouts: statuses, the whole program, and its output grids next to the expected ones.
"use strict";

(() => {
  const { el, load, address } = report;
  const { visible, tokenText, rewardBox } = trace;

  // ------------------------------ rollouts ------------------------------

  // Equal ones as one: [[rollout, number of the first, how many]].
  function grouped(rollouts) {
    const found = new Map();
    rollouts.forEach((rollout, nth) => {
      const key = JSON.stringify([rollout.text, rollout.reward, rollout.statuses]);
      if (found.has(key)) found.get(key)[2]++;
      else found.set(key, [rollout, nth, 1]);
    });
    return [...found.values()];
  }

  function drawnRollout(rollout, nth, times, isOpen, action, before, pairs) {
    const counted = new Map();
    for (const status of rollout.statuses) counted.set(status, (counted.get(status) ?? 0) + 1);
    const summary = [...counted].map(([status, count]) => (count > 1 ? `${count} × ${status}` : status)).join(", ");
    const item = el(
      "details",
      { class: "rollout", "data-rollout": nth, open: isOpen },
      el(
        "summary",
        {},
        `rollout ${nth + 1} `,
        times > 1 ? el("span", { class: "status times" }, `${times}×`) : "",
        rewardBox(rollout.reward),
        ` ${summary} `,
        el("code", { class: "preview" }, visible(rollout.text.slice(0, 80))),
      ),
    );
    const fill = () => {
      if (item.childElementCount > 1) return;
      item.append(
        el(
          "p",
          { class: "statuses" },
          rollout.statuses.map((status, place) =>
            el("span", { class: `status ${status === "ok" ? "ok" : "bad"}` }, `${pairName(place, pairs)}: ${status}`),
          ),
        ),
        el("pre", { class: "program" }, program(rollout.text, action)),
        before ? el("details", {}, el("summary", {}, "after this state"), el("pre", {}, before)) : "",
      );
      if (rollout.outputs)
        item.append(
          el(
            "div",
            { class: "pairs" },
            rollout.outputs.map((output, place) => drawnOutput(output, place, pairs)),
          ),
        );
    };
    if (isOpen) fill();
    item.addEventListener("toggle", () => {
      if (!item.open) return;
      fill();
      if (address().rollout !== String(nth))
        history.replaceState(null, "", `?${new URLSearchParams({ ...address(), action: action.token, rollout: nth })}`);
    });
    return item;
  }

  const sameAs = (a, b) => grouped([a, b]).length === 1;

  // A rollout's text begins with its action, but for one that is no text (an end of text) or half a character.
  function program(text, action) {
    const start = tokenText(action.token);
    if (!trace.hasTexts() || !text.startsWith(start)) return text;
    return [el("span", { class: "pushed" }, start), text.slice(start.length)];
  }

  // The examples come first; what follows is held out of the prompt, and not in the trace.
  function pairName(place, pairs) {
    const shown = pairs?.train.length ?? Infinity;
    return place < shown ? `train ${place}` : `held out ${place - shown}`;
  }

  function drawnOutput(output, place, pairs) {
    const expected = pairs?.train[place]?.[1] ?? null;
    return el(
      "div",
      { class: "pair" },
      expected ? report.grid(expected, `${pairName(place, pairs)}: expected`, { side: 130 }) : null,
      output ? report.grid(output, "output", { expected, side: 130 }) : el("p", { class: "note" }, "no output"),
    );
  }

  async function showRollouts(list, entry, action, params, problem, row) {
    const all = (await load(entry.rollouts))[entry.entry];
    const own = all[entry.actions.indexOf(action)];
    const ids = problem.sequences[entry.sequence];
    const before = entry.fits ? ids.slice(entry.start, entry.length).map(tokenText).join("") : "";
    const groups = grouped(own);
    const isOpen = (one, nth) => own[params.rollout] !== undefined && (nth === Number(params.rollout) || sameAs(own[params.rollout], one));
    const drawn = groups.map(([one, nth, times]) =>
      drawnRollout(one, nth, times, isOpen(one, nth), action, before, problem.pairs),
    );
    list.replaceChildren(
      el("h2", {}, `${own.length} rollouts${groups.length < own.length ? ` (${groups.length} different)` : ""} after ${trace.named(action.token)}`),
      own.some((one) => one.outputs) || problem.pairs === null
        ? ""
        : el("p", { class: "note" }, "This trace has the statuses of the rollouts, not their outputs."),
      ...drawn,
    );
    list.querySelector("details[open]")?.scrollIntoView({ block: "nearest" });
    return row;
  }

  trace.showRollouts = showRollouts;
})();
