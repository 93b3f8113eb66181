// All metrics: counters as rates per second, gauges as they are, histograms as the quantiles of what came since the last time.
import { $, element, figure, shape, setText } from "./dom.js";
import { quantile } from "./metrics.js";

const points = 90;

// fold replaces the buckets of histograms by their median and 99th percentile; 0: nothing came.
function fold(samples) {
  const kept = [], histograms = new Map();
  for (const s of samples) {
    if (!s.name.endsWith("_bucket")) {
      if (!/_sum$/.test(s.name) || s.type !== "counter") kept.push({ ...s, labels: s.text });
      continue;
    }
    const name = s.family, labels = s.text.replace(/(^|,)le="[^"]+"/, "").replace(/^,/, ""), key = name + "{" + labels + "}";
    if (!histograms.has(key)) histograms.set(key, { name, labels, help: s.help, buckets: [] });
    histograms.get(key).buckets.push([Number(s.labels.le.replace("Inf", "Infinity")), s.grown || 0]);
  }
  for (const h of histograms.values()) {
    for (const q of [0.5, 0.99]) {
      const labels = (h.labels ? h.labels + "," : "") + 'quantile="' + q + '"';
      kept.push({ key: h.name + "{" + labels + "}", name: h.name, labels, value: quantile(h.buckets, q) || 0, type: "gauge", help: h.help });
    }
  }
  return kept;
}

export class Explorer {
  constructor(place) {
    this.series = new Map(); // key -> {name, labels, history, row}
    this.groups = new Map(); // name -> {section, body}
    place.append(
      element("div", { class: "controls" },
        element("label", {}, "Filter ", element("input", { id: "filter", type: "search", placeholder: "name or label", autocomplete: "off" })),
        element("label", {}, element("input", { id: "zero", type: "checkbox" }), " show zeros"),
        element("label", {}, element("input", { id: "runtime", type: "checkbox" }), " show Go runtime")),
      element("div", { id: "groups" }));
    for (const id of ["filter", "zero", "runtime"]) $(id).addEventListener("input", () => this.show());
  }

  update(metrics, visible) {
    const now = metrics.at;
    for (const sample of fold(metrics.samples)) this.take(sample, now);
    for (const [key, s] of this.series) { // a backend that left must not stay as it was
      if (s.at === now) continue;
      s.row?.r.remove();
      this.series.delete(key);
    }
    if (visible) this.show();
  }

  take(sample, now) {
    let s = this.series.get(sample.key);
    if (!s) this.series.set(sample.key, (s = { ...sample, history: [], row: null }));
    if (sample.type !== "counter") s.history.push(sample.value);
    else if (sample.rate !== null) s.history.push(sample.rate);
    Object.assign(s, { value: sample.value, at: now });
    if (s.history.length > points) s.history.shift();
  }

  group(s) {
    let g = this.groups.get(s.name);
    if (!g) {
      const section = element("div"), body = element("tbody");
      section.append(element("h3", {}, s.name), element("p", {}, s.help), element("table", { "aria-label": s.name }, body));
      this.groups.set(s.name, (g = { section, body }));
      const after = [...this.groups.keys()].sort().find((n) => n > s.name);
      $("groups").insertBefore(section, after ? this.groups.get(after).section : null);
    }
    return g;
  }

  row(s) {
    const name = element("th", { class: "labels", scope: "row" }, s.labels.replaceAll('"', "") || s.name);
    const value = element("td", { class: "v" }), picture = shape("svg", { viewBox: "0 0 220 26", "aria-hidden": "true" }), line = shape("polyline", {});
    picture.append(line);
    const r = element("tr", {}, name, value, element("td", { class: "p" }, picture));
    this.group(s).body.append(r);
    return { r, value, line };
  }

  draw(s) {
    s.row ||= this.row(s);
    const now = s.history.at(-1);
    setText(s.row.value, s.type === "counter" ? (now === undefined ? "…" : figure(now) + "/s") : figure(s.value));
    s.row.value.title = s.type === "counter" ? "total " + s.value : String(s.value);
    const top = Math.max(...s.history, 1e-9);
    s.row.line.setAttribute("points", s.history.map((v, i) =>
      ((points - s.history.length + i) * 220 / points).toFixed(1) + "," + (24 - Math.max(v, 0) / top * 22).toFixed(1)).join(" "));
  }

  visible(s) {
    const words = $("filter").value.toLowerCase();
    if (words && !(s.name + s.labels).toLowerCase().includes(words)) return false;
    if (!$("runtime").checked && /^(go|process|promhttp)_/.test(s.name)) return false;
    return $("zero").checked || s.value !== 0;
  }

  show() {
    const shown = new Set();
    for (const s of this.series.values()) {
      const on = this.visible(s);
      if (on) {
        this.draw(s);
        shown.add(s.name);
      }
      if (s.row) s.row.r.hidden = !on;
    }
    for (const [name, g] of this.groups) g.section.hidden = !shown.has(name);
  }
}
