// Runs of one configuration with several seeds: their groups, names, and mean curves. Pure.
"use strict";

globalThis.seeds = (() => {
  // Groups of the compared runs with their places: [[name, [places]]]; null if no group has several.
  function groupsOf(index) {
    const several = index.runs ?? [];
    const groups = [...Map.groupBy(several.keys(), (place) => several[place].group).values()];
    if (groups.every((places) => places.length === 1)) return null;
    return groups.map((places) => [nameOf(places.map((place) => several[place].name)), places]);
  }

  // What the names have in common at their beginning.
  function nameOf(names) {
    let length = names[0].length;
    while (!names.every((name) => name.startsWith(names[0].slice(0, length)))) length--;
    const common = names[0].slice(0, length).replace(/[-_.]?(seed|s)?[-_.]?\d*$/u, "") || names[0];
    return names.length > 1 ? `${common} (${names.length} runs)` : names[0];
  }

  // A function of x between the first and the last point of a curve, for calls with growing x.
  function interpolated({ x, smoothed }) {
    let next = 1;
    return (at) => {
      while (next < x.length - 1 && x[next] < at) next++;
      const [low, high] = [x[next - 1], x[next]];
      const share = high > low ? (at - low) / (high - low) : 1;
      return smoothed[next - 1] + share * (smoothed[next] - smoothed[next - 1]);
    };
  }

  // The mean of curves where all of them have values: {x, y}; null if that is less than two points.
  function meanCurve(curves) {
    if (curves.some(({ x }) => x.length < 2)) return null;
    const low = Math.max(...curves.map(({ x }) => x[0]));
    const high = Math.min(...curves.map(({ x }) => x.at(-1)));
    const all = new Set(curves.flatMap(({ x }) => x));
    const x = [...all].filter((one) => one >= low && one <= high).toSorted((a, b) => a - b);
    if (x.length < 2) return null;
    const values = curves.map(interpolated);
    return { x, y: x.map((at) => values.reduce((sum, value) => sum + value(at), 0) / curves.length) };
  }

  // The mean curve of each group with several curves: [{name, place, number, x, y}].
  function meanCurves(index, found) {
    return (groupsOf(index) ?? []).flatMap(([name, places]) => {
      const own = found.filter((one) => places.includes(one.run));
      const mean = own.length > 1 ? meanCurve(own) : null;
      return mean === null ? [] : [{ name, place: own[0].place, number: own.length, ...mean }];
    });
  }

  return { groupsOf, meanCurves };
})();
