// A state's actions: every number, and in words which token was pushed, why, and whether it moved.
"use strict";

(() => {
  const { el, change } = report;
  const { ROW, KINDS, arrow, number, logProb, visible, tokenText, kindText, rewardBox } = trace;

  // ------------------------------ why and whether ------------------------------

  const named = (id) => (trace.hasTexts() ? `“${visible(tokenText(id))}”` : `token ${id}`);

  function story(entry, action, row, problem) {
    const others = entry.actions.filter((other) => other !== action);
    const [passes, labels] = ["passes", "labels"].map((name) => others.reduce((sum, other) => sum + other[name], 0));
    const where = entry.fits
      ? `after token ${problem.solution.ids.length - row[ROW.k]} of the ${problem.solution.ids.length} of the golden solution of ${problem.problem}`
      : `with the last ${row[ROW.k]} tokens of the golden solution of ${problem.problem} hidden`;
    const did = action.advantage > 0 ? "was pushed up" : action.advantage < 0 ? "was pushed down" : "was not pushed";
    const because =
      action.labels === 0
        ? `none of its ${action.failures} rollouts could be judged, so it has no label`
        : `${action.passes} of its ${action.labels} rollouts passed, against ${passes} of ${labels} of the other tokens (confidence ${number(action.confidence, 3)})`;
    const after = action.trainer ?? action.engine;
    const moved = action.trainer_moved ?? action.engine_moved;
    return el(
      "div",
      { class: "story", id: "story" },
      el(
        "p",
        {},
        el("strong", {}, `${arrow(action.advantage)} ${named(action.token)} ${did}`),
        `, ${where}, at step ${row[ROW.step]}.`,
      ),
      el("p", {}, el("b", {}, "Why: "), `${because}.`),
      action.advantage === 0
        ? el(
            "p",
            {},
            el("b", {}, "Not trained on (no label): "),
            after === null || action.before === null
              ? "drift was not measured."
              : `drift ${after < action.before ? "" : "+"}${number(after - action.before, 3)} nats (log-prob ${logProb(action.before)} before, ${logProb(after)} after the update).`,
          )
        : el(
            "p",
            {},
            el("b", {}, "Did it move? "),
            el(
              "span",
              { class: `kind ${moved?.kind ?? ""}` },
              `${KINDS[moved?.kind]?.mark ?? ""} ${kindText(moved, action)}`,
            ),
            `: log-prob ${logProb(action.before)} before, ${logProb(after)} after, target ${logProb(action.target)}` +
              (moved
                ? `; target movement ${number(moved.asked, 3)} nats, moved ${number(moved.moved, 3)}.`
                : "."),
          ),
    );
  }

  // ------------------------------ the actions ------------------------------

  const COLUMNS = [
    ["token", null],
    ["from", "teacher: the golden solution's own next token; sampled: drawn from the policy"],
    ["passed", "rollouts that pass / rollouts with a label; ⚠ infrastructure errors, which are no label"],
    ["reward", "action reward: mean over its labelled rollouts"],
    ["confidence", "1 − p~: how sure it is that this token differs from the others (credit.py)"],
    ["A", "advantage: +1 pushed up, −1 pushed down, 0 no evidence"],
    ["target", "log-prob that the update aimed at"],
    ["before", "log-prob under the weights that were updated"],
    ["after", "log-prob after the update, in the trainer"],
    ["served", "log-prob after the update, as the serving engine gives it"],
    ["reference", "log-prob under the reference model"],
    ["moved", "what the update did, measured in the trainer / from the engine's log-prob"],
  ];

  function actionRow(action, isOpen) {
    const moved = (own) =>
      own ? el("span", { class: `kind ${own.kind}`, title: KINDS[own.kind].text }, KINDS[own.kind].mark) : "–";
    return el(
      "tr",
      {
        class: isOpen ? "selected" : null,
        "data-action": action.token,
        "aria-selected": String(isOpen),
        onclick: () => change({ action: action.token, rollout: null }, { replace: true }),
      },
      el(
        "td",
        {},
        el(
          "button",
          { class: "plain" },
          el("code", {}, `${arrow(action.advantage)} ${trace.visibleToken(action.token)}`),
        ),
      ),
      el("td", {}, action.is_teacher ? el("b", {}, "teacher") : "sampled"),
      el(
        "td",
        {},
        `${action.passes}/${action.labels}`,
        action.failures ? el("span", { class: "failure" }, ` ⚠${action.failures}`) : null,
      ),
      el("td", {}, rewardBox(action.reward)),
      el("td", {}, number(action.confidence, 3)),
      el("td", {}, action.advantage > 0 ? "+1" : action.advantage < 0 ? "−1" : "0"),
      [action.target, action.before, action.trainer, action.engine, action.reference].map((value) =>
        el("td", { title: value === null ? "not measured" : logProb(value) }, number(value, 3)),
      ),
      el("td", {}, action.advantage === 0 ? "" : [moved(action.trainer_moved), " / ", moved(action.engine_moved)]),
    );
  }

  const actionTable = (entry, open) =>
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { id: "actions" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            COLUMNS.map(([name, tip]) => el("th", { tip: tip ? [tip] : null }, name)),
          ),
        ),
        el(
          "tbody",
          {},
          entry.actions.map((action) => actionRow(action, action === open)),
        ),
      ),
    );

  Object.assign(trace, { named, story, actionTable });
})();
