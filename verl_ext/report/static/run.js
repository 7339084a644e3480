// Starts a page of one run or several: its views as tabs, their keys, their address.
"use strict";

(() => {
  const { el, go, loadText } = report;
  let shown = null;
  let isStyled = false;

  const viewOf = (params, index) => {
    const wanted = params.view ?? (params.metrics === undefined ? index.views[0] : "curves");
    if (!index.views.includes(wanted))
      throw new Error(`this run has no view ${wanted}; there are ${index.views.join(", ")}`);
    return wanted;
  };

  // From one view to another goes what both understand.
  const addressOf = (name, index) => ({ view: name === index.views[0] ? null : name });

  function drawHeader(name, index) {
    const tabs = index.views.map((one) =>
      report.link(
        addressOf(one, index),
        { class: "tab", "aria-current": one === name ? "page" : null },
        runs.views[one].title,
      ),
    );
    report.setHeader(
      [
        [
          index.name ??
            (index.runs.length > 4 ? `${index.runs.length} runs` : index.runs.map((run) => run.name).join(" · ")),
          null,
        ],
      ],
      index.about,
      [el("nav", { "aria-label": "Views", class: "tabs" }, tabs)],
    );
    // On a narrow page the tabs are a strip that scrolls.
    document.querySelector("a.tab[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    report.setKeys([
      ...(runs.views[name]?.keys?.() ?? []),
      ...index.views.map((one, place) => ({
        keys: [String(place + 1)],
        text: runs.views[one].title,
        run: () => go(addressOf(one, index)),
      })),
    ]);
  }

  report.start({
    draw: async (params, index, isWanted) => {
      if (!isStyled) {
        const style = await loadText("style");
        if (!isStyled) document.head.append(el("style", {}, style));
        isStyled = true;
        if (!isWanted()) return;
      }
      drawHeader(null, index);
      const name = viewOf(params, index);
      const isShown = shown === name;
      shown = name;
      drawHeader(name, index);
      await runs.views[name].draw(params, index, isWanted, isShown);
    },
  });
})();
