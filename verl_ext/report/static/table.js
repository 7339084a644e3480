// A table of any length: only the rows in sight are elements.
"use strict";

(() => {
  const { el } = report;
  const ROW = 34; // pixels, as --row in page.css
  const SPARE = 8; // rows drawn above and below what is in sight

  // columns: [{name, width, sort, tip}]   cells(i): children of row i   open(i), onselect(i)
  report.table = ({ label, columns, sort, onsort, cells, open, onselect }) => {
    let count = 0;
    let selected = 0;
    let shown = [-1, -1];
    const body = el("div", { class: "rows", role: "rowgroup" });
    const head = el("div", { class: "row head", role: "row" });
    const element = el("div", { class: "table", role: "table", "aria-label": label, tabindex: "0" }, head, body);
    element.style.setProperty("--columns", columns.map((column) => column.width).join(" "));

    function drawHead(order) {
      head.replaceChildren(
        ...columns.map(({ name, sort: key, tip }) => {
          const mark = order === key ? " ↑" : order === `-${key}` ? " ↓" : "";
          return key
            ? el(
                "button",
                { role: "columnheader", tip, onclick: () => onsort(order === key ? `-${key}` : key) },
                name + mark,
              )
            : el("span", { role: "columnheader", tip }, name);
        }),
      );
    }

    function drawRow(place) {
      return el(
        "div",
        {
          class: place === selected ? "row selected" : "row",
          role: "row",
          "aria-rowindex": place + 2,
          "aria-selected": place === selected ? "true" : "false",
          "data-row": place,
          style: { transform: `translateY(${place * ROW}px)` },
          onclick: () => {
            select(place);
            open(place);
          },
        },
        cells(place).map((cell) => el("div", { class: "cell", role: "cell" }, cell)),
      );
    }

    function draw(force = false) {
      const first = Math.max(0, Math.floor(element.scrollTop / ROW) - SPARE);
      const last = Math.min(count, Math.ceil((element.scrollTop + element.clientHeight) / ROW) + SPARE);
      if (!force && shown[0] === first && shown[1] === last) return;
      shown = [first, last];
      body.replaceChildren(
        ...Array.from({ length: Math.max(0, last - first) }, (_, offset) => drawRow(first + offset)),
      );
    }

    function select(place) {
      if (count === 0) return;
      selected = Math.max(0, Math.min(count - 1, place));
      const top = selected * ROW;
      const room = element.clientHeight - 2 * ROW;
      if (top < element.scrollTop) element.scrollTop = top;
      else if (top > element.scrollTop + room) element.scrollTop = top - room;
      draw(true);
      onselect?.(selected);
    }

    let waiting = false;
    const drawSoon = () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        draw();
      });
    };
    element.addEventListener("scroll", drawSoon);
    new ResizeObserver(drawSoon).observe(element);
    drawHead(sort);
    return {
      element,
      // Show `newCount` rows, with `place` selected and in sight.
      show(newCount, place = 0, order = sort) {
        count = newCount;
        selected = Math.max(0, Math.min(count - 1, place));
        body.style.height = `${count * ROW}px`;
        element.setAttribute("aria-rowcount", count + 1);
        drawHead(order);
        const top = selected * ROW;
        const inSight = top >= element.scrollTop && top <= element.scrollTop + element.clientHeight - 2 * ROW;
        if (!inSight) element.scrollTop = Math.max(0, top - element.clientHeight / 2);
        draw(true);
      },
      move: (by) => select(selected + by),
      moveTo: (place) => select(place < 0 ? count + place : place),
      openSelected: () => count > 0 && open(selected),
      get selected() {
        return selected;
      },
    };
  };

  report.tableKeys = (table) => [
    { keys: ["j", "ArrowDown"], text: "next row", run: () => table().move(1) },
    { keys: ["k", "ArrowUp"], text: "row before", run: () => table().move(-1) },
    { keys: ["PageDown"], text: "20 rows on", run: () => table().move(20) },
    { keys: ["PageUp"], text: "20 rows back", run: () => table().move(-20) },
    { keys: ["Home", "g"], text: "first row", run: () => table().moveTo(0) },
    { keys: ["End", "G"], text: "last row", run: () => table().moveTo(-1) },
    { keys: ["Enter"], text: "open the row", run: () => table().openSelected() },
  ];
})();
