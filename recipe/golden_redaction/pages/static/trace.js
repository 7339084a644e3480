// The trace viewer: what its views share, and which view an address asks for.
"use strict";

globalThis.trace = (() => {
  const { el, address } = report;

  // Rows of the index by place; see trace_data.py.
  const ROW = {
    problem: 0,
    k: 1,
    step: 2,
    version: 3,
    reward: 4,
    coverage: 5,
    nth: 6,
    rollouts: 7,
    failures: 8,
    actions: 9,
    moved: 10,
    gap: 11,
  };
  const ACTION = { token: 0, reward: 1, advantage: 2, kind: 3, teacher: 4 };

  const KINDS = {
    intended: { mark: "✓", text: "moved as intended" },
    overshot: { mark: "»", text: "overshot its target" },
    wrong_way: { mark: "✗", text: "moved the wrong way" },
    still: { mark: "=", text: "did not move" },
  };
  const kindText = (moved, action) => {
    if (action.advantage === 0) return "not trained on (no label)";
    return moved ? KINDS[moved.kind].text : "not measured";
  };
  const arrow = (advantage) => (advantage > 0 ? "▲" : advantage < 0 ? "▼" : "");

  // ------------------------------ numbers and tokens ------------------------------

  const number = (value, digits = 2) =>
    value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");
  const logProb = (value) =>
    value === null || value === undefined
      ? "–"
      : `${number(value, 3)} (p ${number(Math.exp(value), Math.exp(value) < 0.01 ? 4 : 2)})`;

  let texts = null;
  const tokenText = (id) => (id === null ? "?" : texts === null ? `${id} ` : (texts[id] ?? `<${id}>`));
  // White space made visible, for a token that is only white space.
  const visible = (text) =>
    text === " "
      ? "␣"
      : text
          .replaceAll("\n", "⏎")
          .replaceAll("\t", "⇥")
          .replaceAll(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));
  const visibleToken = (id) =>
    visible(tokenText(id).trimEnd() === "" ? tokenText(id) : texts === null ? String(id) : tokenText(id));

  // A box coloured by reward from 0 to 1; striped where there is no label.
  const rewardBox = (reward, ...children) =>
    reward === null
      ? el("span", { class: "reward none" }, ...(children.length ? children : ["no label"]))
      : el(
          "span",
          { class: "reward", style: { "--share": `${Math.round(reward * 100)}%` } },
          ...(children.length ? children : [number(reward)]),
        );

  // ------------------------------ addresses ------------------------------

  const FILTERS = ["problem", "redacted", "step", "only", "sort"];
  // A state's own address, with what leads back to the list it was chosen from.
  function stateAddress(index, row, action = null) {
    const now = address();
    return {
      view: "state",
      problem: index.problems[row[ROW.problem]],
      redacted: row[ROW.k],
      step: row[ROW.step],
      nth: row[ROW.nth] || null,
      action,
      numbers: now.numbers,
      back: now.view
        ? now.back
        : new URLSearchParams(FILTERS.filter((name) => now[name]).map((name) => [name, now[name]])).toString(),
    };
  }
  const listAddress = () => Object.fromEntries(new URLSearchParams(address().back ?? ""));

  function findRow(index, params) {
    return index.rows.findIndex(
      (row) =>
        index.problems[row[ROW.problem]] === params.problem &&
        String(row[ROW.k]) === params.redacted &&
        String(row[ROW.step]) === params.step &&
        String(row[ROW.nth]) === (params.nth ?? "0"),
    );
  }

  // ------------------------------ which view ------------------------------

  const views = {};
  const title = (index) => `Trace of ${index.name}`;
  let shown = null;
  async function draw(params, index, isWanted) {
    texts = index.texts;
    // An action can only be seen in its state, whether or not the address says so.
    const name = params.view ?? (params.action === undefined ? "table" : "state");
    // Whatever becomes of the view, there is a way back.
    report.setHeader([[title(index), name === "table" ? null : {}]], index.about);
    if (!(name in views)) throw new Error(`there is no view ${name}; there are ${Object.keys(views).join(", ")}`);
    // Set before anything is awaited: the reader may have gone back by then.
    const isShown = shown === name;
    shown = name;
    await views[name].draw(params, index, isWanted, isShown);
  }

  return {
    ROW,
    ACTION,
    KINDS,
    kindText,
    arrow,
    number,
    logProb,
    tokenText,
    visible,
    visibleToken,
    rewardBox,
    stateAddress,
    listAddress,
    findRow,
    views,
    title,
    draw,
    forget: () => views.table.forget(),
    hasTexts: () => texts !== null,
  };
})();
