// ARC grids in ARC's colours, with numbers for those who cannot tell the colours apart.
"use strict";

(() => {
  const { el, setTip, address } = report;
  const COLOURS = [
    "#000000",
    "#0074D9",
    "#FF4136",
    "#2ECC40",
    "#FFDC00",
    "#AAAAAA",
    "#F012BE",
    "#FF851B",
    "#7FDBFF",
    "#870C25",
  ];
  const NAMES = ["black", "blue", "red", "green", "yellow", "grey", "magenta", "orange", "light blue", "maroon"];
  const IS_DARK = [true, true, false, false, false, false, true, false, false, true];
  const SIDE = 190; // pixels that the longer side should take
  const name = (cell) => `${cell} ${NAMES[cell] ?? ""}`;

  // `expected`: a grid to compare with; cells that differ are crossed out.
  report.grid = (grid, caption, { expected = null, side = SIDE } = {}) => {
    const [rows, columns] = [grid.length, grid[0]?.length ?? 0];
    const withNumbers = address().numbers === "1";
    const size = Math.max(withNumbers ? 13 : 5, Math.min(24, Math.floor(side / Math.max(rows, columns))));
    const scale = Math.min(3, window.devicePixelRatio || 1);
    const canvas = el("canvas", {
      width: Math.round(columns * size * scale),
      height: Math.round(rows * size * scale),
      role: "img",
      "aria-label": `${caption}: grid of ${rows} rows and ${columns} columns`,
      style: { width: `${columns * size}px`, height: `${rows * size}px` },
    });
    const sameSize = expected && expected.length === rows && (expected[0]?.length ?? 0) === columns;
    const differs = (r, c) => sameSize && expected[r][c] !== grid[r][c];
    const brush = canvas.getContext("2d");
    brush.scale(scale, scale);
    brush.textAlign = "center";
    brush.textBaseline = "middle";
    brush.font = `${Math.floor(size * 0.6)}px sans-serif`;
    let wrong = 0;
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        const cell = grid[r][c];
        brush.fillStyle = COLOURS[cell] ?? "#ffffff";
        brush.fillRect(c * size, r * size, size, size);
        brush.strokeStyle = "#555555";
        brush.lineWidth = 0.5;
        brush.strokeRect(c * size, r * size, size, size);
        if (withNumbers) {
          brush.fillStyle = IS_DARK[cell] ? "#ffffff" : "#000000";
          brush.fillText(cell, (c + 0.5) * size, (r + 0.55) * size);
        }
        if (differs(r, c)) {
          wrong += 1;
          cross(brush, c * size, r * size, size);
        }
      }
    }
    setTip(canvas, (event) => {
      if (!event) return [`${rows} × ${columns}`];
      const box = canvas.getBoundingClientRect();
      const r = Math.min(rows - 1, Math.max(0, Math.floor((event.clientY - box.top) / size)));
      const c = Math.min(columns - 1, Math.max(0, Math.floor((event.clientX - box.left) / size)));
      return [
        `row ${r + 1}, column ${c + 1}: ${name(grid[r][c])}`,
        ...(differs(r, c) ? [`expected ${name(expected[r][c])}`] : []),
      ];
    });
    const notes = [`${rows} × ${columns}`];
    if (expected && !sameSize) notes.push(`expected ${expected.length} × ${expected[0]?.length ?? 0}`);
    if (wrong > 0) notes.push(`${wrong} wrong`);
    return el(
      "figure",
      { class: wrong > 0 || (expected && !sameSize) ? "grid wrong" : "grid" },
      el("figcaption", {}, caption, el("small", {}, ` ${notes.join(", ")}`)),
      canvas,
    );
  };

  function cross(brush, x, y, size) {
    for (const [colour, width] of [
      ["#000000", 3],
      ["#ffffff", 1.4],
    ]) {
      brush.strokeStyle = colour;
      brush.lineWidth = width;
      brush.beginPath();
      brush.moveTo(x + 2, y + 2);
      brush.lineTo(x + size - 2, y + size - 2);
      brush.moveTo(x + size - 2, y + 2);
      brush.lineTo(x + 2, y + size - 2);
      brush.stroke();
    }
  }

  // For readers who cannot distinguish all ten colours.
  report.numbersButton = () => {
    const on = address().numbers === "1";
    return el(
      "button",
      { id: "numbers", "aria-pressed": String(on), onclick: report.toggleNumbers, title: "numbers in the cells (n)" },
      on ? "colours only" : "0–9 numbers",
    );
  };
  report.toggleNumbers = () => report.change({ numbers: address().numbers === "1" ? null : 1 }, { replace: true });
  report.numbersKey = { keys: ["n"], text: "numbers in the grids", run: report.toggleNumbers };
})();
