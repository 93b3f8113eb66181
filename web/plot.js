// Line plots as SVG over the last span of time. Values are shown on request: by the pointer, or with the arrow keys.

import { ago, element, figure, setText, shape } from "./dom.js";

// niceTop is the least of 1, 2, 2.5, 5 × 10^n that is not below v, so that half of it is a round number too.
function niceTop(v, base) {
  if (!(v > 0)) return 1;
  let power = 10 ** Math.floor(Math.log10(v));
  if (base === 1024 && v >= 1024) {
    const unit = 1024 ** Math.floor(Math.log(v) / Math.log(1024));
    power = unit * 10 ** Math.floor(Math.log10(v / unit));
  }
  return [1, 2, 2.5, 3, 4, 5, 6, 8, 10].map((f) => f * power).find((t) => t >= v * 0.999);
}

export class Plot {
  // series: [{name, style}], style one of the classes a to h of style.css. text writes a value; figure unless given.
  // base is that of the axis: 1024 for bytes.
  constructor(place, title, series, text = figure, base = 10) {
    this.base = base;
    this.title = title;
    this.text = text;
    this.cursor = null; // index of the point requested
    this.svg = shape("svg", { role: "img", tabindex: "0", height: "170" });
    this.legend = element("ul", { class: "legend" });
    this.lines(series);
    place.append(this.svg, this.legend);
    this.svg.addEventListener("pointermove", (e) => this.point(this.index(e.offsetX)));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", (e) => this.key(e));
    new ResizeObserver(() => this.draw()).observe(place);
  }

  // lines replaces the series.
  lines(series) {
    this.series = series;
    this.items = series.map((s) => {
      const mark = shape("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" }), text = element("span"), item = element("li", {}, mark, text);
      mark.append(shape("path", { class: s.style, d: "M0 4H26" }));
      return { item, text };
    });
    this.legend.replaceChildren(...this.items.map(({ item }) => item));
  }

  key(e) {
    if (!this.data) return;
    const last = this.count - 1, at = this.cursor ?? last, page = Math.ceil(this.count / 20);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - page, PageDown: at + page, Home: 0, End: last, Escape: null }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    this.point(to === null ? null : Math.min(last, Math.max(0, to)));
  }

  index(x) {
    if (!this.data || !this.count) return null;
    const slot = Math.round((x - this.left) / this.width * (this.slots - 1)) - (this.slots - this.count);
    return slot < 0 || slot >= this.count ? null : slot;
  }

  point(i) {
    this.cursor = i;
    this.draw();
  }

  // set takes columns of values (null: nothing known), oldest first, the seconds of a step, and how many steps the plot is wide.
  set(data, step, slots) {
    Object.assign(this, { data, step, slots: Math.max(slots, 2), count: Math.max(0, ...data.map((d) => d.length)) });
    if (this.cursor !== null && this.cursor >= this.count) this.cursor = null;
    this.draw();
  }

  draw() {
    const full = this.svg.clientWidth;
    if (!this.data || !full) return;
    const height = 170, bottom = height - 20, top = niceTop(Math.max(...this.data.flatMap((d) => d.map((v) => v || 0))), this.base);
    const label = (v) => this.text(v).replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, ""); // 1.5, not 1.50
    this.left = 12 + 7 * Math.max(label(top).length, label(top / 2).length);
    this.width = full - this.left - 16;
    const x = (i) => this.left + (this.slots - this.count + i) * this.width / (this.slots - 1);
    const y = (v) => bottom - v / top * (bottom - 10);
    const parts = [];
    for (const v of [0, top / 2, top]) {
      parts.push(shape("line", { class: "grid", x1: this.left, x2: this.left + this.width, y1: y(v), y2: y(v) }));
      parts.push(shape("text", { x: this.left - 6, y: y(v) + 4, "text-anchor": "end" }, label(v)));
    }
    const marks = full < 700 ? 3 : 6;
    for (let n = 0; n < marks; n++) {
      const share = n / (marks - 1), seconds = (1 - share) * (this.slots - 1) * this.step;
      const anchor = n === 0 ? "start" : n === marks - 1 ? "end" : "middle";
      parts.push(shape("text", { x: this.left + share * this.width, y: height - 4, "text-anchor": anchor }, ago(Math.round(seconds))));
    }
    this.series.forEach((s, k) => {
      let path = "", pen = "M";
      this.data[k].forEach((v, i) => {
        if (v === null) pen = "M";
        else {
          path += pen + x(i).toFixed(1) + " " + y(v).toFixed(1);
          pen = "L";
        }
      });
      if (path) parts.push(shape("path", { class: s.style, d: path }));
    });
    if (this.cursor !== null) parts.push(shape("line", { class: "cursor", x1: x(this.cursor), x2: x(this.cursor), y1: 8, y2: bottom }));
    this.svg.setAttribute("viewBox", `0 0 ${full} ${height}`);
    this.svg.replaceChildren(...parts);
    this.say();
  }

  say() {
    const at = this.cursor ?? this.count - 1;
    const when = this.cursor === null ? "" : " at " + ago((this.count - 1 - at) * this.step);
    const values = this.series.map((s, k) => [s.name, this.data[k][at]]).map(([n, v]) => n + " " + (v === null || v === undefined ? "–" : this.text(v)));
    this.items.forEach(({ text }, k) => setText(text, values[k] + (k === 0 ? when : "")));
    this.svg.setAttribute("aria-label", `${this.title}${when || " now"}: ${values.join(", ")}. Arrow keys move through time.`);
  }
}
