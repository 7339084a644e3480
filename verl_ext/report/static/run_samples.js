// What the policy writes: rollouts of every step, newest first, by step, prompt, reward and words.
"use strict";

(() => {
  const { el, load, change, go, address, main } = report;
  const { number } = runs;
  const PAGE = 30;
  const FIELDS = { step: "3 or 3-9", prompt: "index", reward: "0 or 0.5-1", search: "words" };
  let parts = null;

  // "5", "-1" or "0.5-1" as its ends; null for anything else.
  function range(text) {
    const match = /^\s*(-?[\d.]+)\s*(?:-\s*(-?[\d.]+))?\s*$/.exec(text ?? "");
    if (!match) return null;
    const [low, high] = [Number(match[1]), Number(match[2] ?? match[1])];
    return Number.isNaN(low) || Number.isNaN(high) ? null : [low, high];
  }

  function choose(samples, params) {
    const [steps, rewards] = [range(params.step), range(params.reward)];
    const words = (params.search ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const within = (limits, value) => limits === null || (value !== null && value >= limits[0] && value <= limits[1]);
    const found = samples.filter(
      (one) =>
        within(steps, one.step) &&
        within(rewards, one.reward) &&
        (params.prompt === undefined || one.index === params.prompt) &&
        words.every((word) => `${one.prompt ?? ""} ${one.text} ${one.notes}`.toLowerCase().includes(word)),
    );
    return params.order === "oldest" ? found : newestFirst(found);
  }

  // Steps backwards; within a step the order stays, so that best and worst of a prompt are neighbours.
  const newestFirst = (samples) => samples.toSorted((a, b) => b.step - a.step);

  const lastLine = (text) => text.trim().split("\n").at(-1).slice(-160);

  function sample(one, index) {
    const known = one.index !== null && one.index !== undefined;
    return el(
      "article",
      { class: "sample", "data-step": one.step },
      el(
        "div",
        {},
        el("span", { class: "status" }, `step ${one.step}`),
        el("span", { class: "status reward-of" }, one.reward === null ? "no reward" : `reward ${number(one.reward)}`),
        one.times > 1 ? el("span", { class: "status times" }, `${one.times}×`) : "",
        known
          ? report.link(
              index.views.includes("curriculum") ? { view: "curriculum", prompt: one.index } : { view: "samples", prompt: one.index },
              { class: "of-prompt" },
              `prompt ${one.index}`,
            )
          : "",
        " ",
        el("span", { class: "note" }, [one.where, one.notes].filter(Boolean).join(" · ")),
        one.truth ? el("span", { class: "note" }, " · ground truth ", el("code", {}, one.truth)) : "",
      ),
      one.prompt
        ? el("details", {}, el("summary", {}, "prompt: ", el("span", { class: "note" }, lastLine(one.prompt))), report.clamped(one.prompt))
        : "",
      report.clamped(one.text),
    );
  }

  function build(samples) {
    const inputs = Object.entries(FIELDS).map(([name, hint]) =>
      el("input", {
        name,
        placeholder: hint,
        autocomplete: "off",
        spellcheck: "false",
        size: name === "search" ? 18 : 8,
        oninput: (event) => change({ [name]: event.target.value, show: null }, { replace: true }),
      }),
    );
    const rewards = [...new Set(samples.map((one) => one.reward))].filter((one) => one !== null).toSorted((a, b) => a - b);
    const ends = rewards.length > 1 ? [rewards.at(-1), rewards[0]] : [];
    const quick = ends.map((reward, place) =>
      el(
        "button",
        {
          "data-reward": reward,
          onclick: () =>
            change({ reward: address().reward === String(reward) ? null : reward, show: null }, { replace: true }),
        },
        `${place === 0 ? "highest" : "lowest"} reward`,
      ),
    );
    const order = el(
      "button",
      {
        id: "oldest",
        onclick: () => change({ order: address().order === "oldest" ? null : "oldest", show: null }, { replace: true }),
      },
      "oldest first",
    );
    const found = el("span", { class: "found", role: "status" });
    const list = el("div", { id: "samples" });
    main.className = "stack";
    main.replaceChildren(
      el(
        "form",
        { class: "bar", onsubmit: (event) => event.preventDefault() },
        inputs.map((input) => el("label", {}, input.name, input)),
        el("span", { class: "choices" }, quick, order),
        found,
      ),
      list,
    );
    return { inputs, quick, order, found, list, samples };
  }

  runs.views.samples = {
    title: "samples",
    draw: async (params, index, isWanted, isShown) => {
      const samples = await load("samples");
      if (!isWanted()) return;
      if (samples.length === 0) {
        parts = null;
        main.className = "";
        main.replaceChildren(
          el(
            "p",
            { class: "note", id: "no-samples" },
            "No rollouts were saved. ",
            el("code", {}, "rollout_texts.prompts_per_step=2"),
            " keeps the best and the worst of two prompts per step. With ",
            el("code", {}, "trainer.rollout_data_dir=FOLDER"),
            " verl writes all rollouts, of which this page shows up to 16 of a step, from up to 60 steps.",
          ),
        );
        return;
      }
      if (!isShown || parts === null || parts.samples !== samples) parts = build(samples);
      for (const input of parts.inputs) if (input !== document.activeElement) input.value = params[input.name] ?? "";
      for (const button of parts.quick)
        button.setAttribute("aria-pressed", String(button.dataset.reward === params.reward));
      parts.order.setAttribute("aria-pressed", String(params.order === "oldest"));
      const chosen = choose(samples, params);
      const most = Math.max(PAGE, Number(params.show) || 0);
      const wrong = ["step", "reward"].filter((name) => params[name] !== undefined && range(params[name]) === null);
      parts.found.textContent = wrong.length
        ? `${wrong.join(" and ")}: a number, or two with a dash between`
        : `${number(chosen.length)} of ${number(samples.length)} rollouts`;
      parts.list.replaceChildren(
        ...chosen.slice(0, most).map((one) => sample(one, index)),
        ...(chosen.length > most
          ? [
              el(
                "button",
                { id: "more", onclick: () => change({ show: most + PAGE }, { replace: true }) },
                `${PAGE} more`,
              ),
            ]
          : []),
      );
    },
    keys: () => [
      { keys: ["/"], text: "search the texts", run: () => parts?.inputs.at(-1).focus() },
      { keys: ["o"], text: "oldest first, or newest", run: () => parts?.order.click() },
      { keys: ["Escape"], text: "drop all filters", run: () => go({ view: "samples" }, { replace: true }) },
    ],
  };
})();
