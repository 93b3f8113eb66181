// The last hour: the plots that /history has.
import { bytes, element, figure, percent, seconds } from "./dom.js";
import { Plot } from "./plot.js";

const writers = { bytes, seconds, percent };
const spans = [300, 900, 1800]; // seconds; then the whole hour
const styles = ["a", "b", "c", "d", "f", "g", "h", "e"];

// writer writes values of a unit; a rate is per second.
function writer(unit, rate) {
  const write = writers[unit] || figure;
  return rate && unit !== "percent" ? (v) => write(v) + "/s" : write;
}

export class LastHour {
  constructor(place) {
    this.plots = new Map(); // title -> {figure, plot, shape}
    this.place = place;
    place.classList.add("plots");
  }

  update(h) {
    for (const p of h.plots) {
      const lines = p.lines.filter((l) => l.values.some((v) => v !== null));
      let shown = this.plots.get(p.title);
      if (!shown) this.plots.set(p.title, (shown = this.add(p)));
      shown.figure.hidden = lines.length === 0;
      if (!lines.length) continue;
      const names = JSON.stringify(lines.map((l) => l.name));
      if (shown.names !== names) {
        shown.names = names;
        shown.plot.lines(lines.map((l, i) => ({ name: l.name, style: styles[i % styles.length] })));
      }
      const longest = Math.max(...lines.map((l) => l.values.length));
      const slots = spans.map((s) => s / h.step_s + 1).find((n) => n >= longest) || h.slots; // a young process has a short axis
      shown.plot.set(lines.map((l) => [...Array(longest - l.values.length).fill(null), ...l.values]), h.step_s, slots);
    }
  }

  add(p) {
    const title = p.title + (p.rate && p.unit !== "percent" ? " per second" : "");
    const place = element("div", { class: "plot" }), figure = element("figure", { "aria-label": title }, element("figcaption", {}, title), place);
    this.place.append(figure);
    return { figure, plot: new Plot(place, title, [], writer(p.unit, p.rate), p.unit === "bytes" ? 1024 : 10) };
  }
}
