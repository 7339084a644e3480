// Texts of the start and of the end, side by side.
"use strict";

(() => {
  const { el, load, main } = report;

  const sample = (one) =>
    el(
      "article",
      { class: "sample" },
      el(
        "div",
        {},
        el("span", { class: "status" }, `step ${one.step}`),
        el("span", { class: "status" }, one.reward === null ? "no reward" : `reward ${runs.number(one.reward)}`),
        el("span", { class: "note" }, [one.where, one.notes].filter(Boolean).join(" · ")),
      ),
      one.prompt ? el("details", {}, el("summary", {}, "prompt"), el("pre", {}, one.prompt)) : "",
      el("pre", {}, one.text),
    );

  runs.views.samples = {
    title: "samples",
    draw: async (params, index, isWanted) => {
      const { start, end } = await load("samples");
      if (!isWanted()) return;
      if (start.length === 0) {
        main.className = "";
        main.replaceChildren(
          el(
            "p",
            { class: "note", id: "no-samples" },
            "This run folder keeps no texts. Where a recipe does not record its rollouts, ",
            el("code", {}, "trainer.rollout_data_dir=FOLDER"),
            " makes verl write those of every step.",
          ),
        );
        return;
      }
      main.className = "two";
      main.replaceChildren(
        el("div", { class: "side", id: "start" }, el("h2", {}, "At the start"), start.map(sample)),
        el("div", { class: "side", id: "end" }, el("h2", {}, "At the end"), end.map(sample)),
      );
    },
    keys: () => [],
  };
})();
