// plotly.js travels compressed with the page, and is unpacked when the first chart is drawn.
"use strict";

(() => {
  const { el, loadText } = report;
  let ready = null;

  async function unpack() {
    document.head.append(el("script", {}, await loadText("plotly")));
    return globalThis.Plotly;
  }

  // Draws into a new element of the given class, once that is in the document.
  report.chart = async (element, traces, layout, onclick) => {
    ready ??= unpack();
    const plotly = await ready;
    if (!element.isConnected) return;
    const { color } = getComputedStyle(element);
    const line = getComputedStyle(element).getPropertyValue("border-top-color");
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line };
    const own = Object.fromEntries(
      Object.entries(layout).map(([name, value]) => [name, name.includes("axis") ? { ...axis, ...value } : value]),
    );
    await plotly.newPlot(
      element,
      traces,
      {
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { color, size: 12 },
        margin: { l: 52, r: 64, t: 12, b: 40 },
        hovermode: "closest",
        ...own,
      },
      { displaylogo: false, displayModeBar: false, responsive: true },
    );
    if (onclick) element.on("plotly_click", (event) => onclick(event.points[0]));
  };
})();
