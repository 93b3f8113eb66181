// Reads /metrics every two seconds and draws each series: counters as rates per second,
// gauges as they are, histograms as the quantiles of what came since the last time. See web.go.
"use strict";

const period = 2000, points = 90;
const series = new Map(); // "name{labels}" -> {name, labels, type, help, last, at, value, history, row}
const groups = new Map(); // name -> {section, body}
const $ = (id) => document.getElementById(id);

// parse reads the Prometheus text format, as far as client_golang writes it.
function parse(text) {
  const types = new Map(), helps = new Map(), found = [];
  for (const line of text.split("\n")) {
    let m;
    if ((m = /^# TYPE (\S+) (\S+)/.exec(line))) types.set(m[1], m[2]);
    else if ((m = /^# HELP (\S+) (.*)/.exec(line))) helps.set(m[1], m[2]);
    else if ((m = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line))) {
      const family = types.has(m[1]) ? m[1] : m[1].replace(/_(sum|count|bucket)$/, "");
      found.push({
        name: m[1], labels: m[2] || "", value: Number(m[3].replace("Inf", "Infinity")),
        type: m[1] !== family ? "counter" : types.get(family) || "untyped", help: helps.get(family) || "",
      });
    }
  }
  return found;
}

const before = new Map(); // histogram with its labels -> counts by bound, as of the last time

// fold replaces the buckets of histograms by their median and 99th percentile of what came since the last time; 0: nothing came.
function fold(found) {
  const kept = [], histograms = new Map();
  for (const s of found) {
    const bound = /_bucket$/.test(s.name) && /(?:^|,)le="([^"]+)"/.exec(s.labels);
    if (!bound) {
      if (!/_sum$/.test(s.name) || s.type !== "counter") kept.push(s);
      continue;
    }
    const name = s.name.replace(/_bucket$/, ""), labels = s.labels.replace(/(^|,)le="[^"]+"/, "").replace(/^,/, "");
    const key = name + "{" + labels + "}";
    if (!histograms.has(key)) histograms.set(key, { name, labels, help: s.help, buckets: [] });
    histograms.get(key).buckets.push([Number(bound[1].replace("Inf", "Infinity")), s.value]);
  }
  for (const [key, h] of histograms) {
    const last = before.get(key), grown = h.buckets.map(([le, n]) => [le, n - (last?.get(le) ?? n)]);
    before.set(key, new Map(h.buckets));
    for (const q of [0.5, 0.99]) {
      kept.push({ name: h.name, labels: (h.labels ? h.labels + "," : "") + 'quantile="' + q + '"', value: quantile(grown, q), type: "gauge", help: h.help });
    }
  }
  return kept;
}

// quantile interpolates inside a bucket; what lies above the last bound counts as that bound.
function quantile(buckets, q) {
  const wanted = q * buckets.at(-1)[1];
  let low = 0, below = 0;
  for (const [le, n] of buckets) {
    if (wanted > 0 && n >= wanted) return Number.isFinite(le) ? low + (le - low) * (wanted - below) / (n - below) : low;
    if (Number.isFinite(le)) low = le;
    below = n;
  }
  return 0;
}

function number(v) {
  if (!Number.isFinite(v)) return "–";
  const a = Math.abs(v);
  if (a >= 1e9) return (v / 1e9).toPrecision(3) + " G";
  if (a >= 1e6) return (v / 1e6).toPrecision(3) + " M";
  if (a >= 1e4) return (v / 1e3).toPrecision(3) + " k";
  return a >= 100 || Number.isInteger(v) ? String(Math.round(v)) : v.toPrecision(3);
}

function take(sample, now) {
  const key = sample.name + "{" + sample.labels + "}";
  let s = series.get(key);
  if (!s) series.set(key, (s = { ...sample, history: [], at: now, last: sample.value, row: null }));
  else if (s.type === "counter") {
    const seconds = (now - s.at) / 1000;
    // A counter that went back was restarted: what it shows now is what came since.
    const grown = sample.value >= s.last ? sample.value - s.last : sample.value;
    s.history.push(seconds > 0 ? grown / seconds : 0);
    s.total = sample.value;
  } else s.history.push(sample.value);
  s.last = sample.value;
  s.at = now;
  if (s.history.length > points) s.history.shift();
}

function element(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function group(s) {
  let g = groups.get(s.name);
  if (!g) {
    const section = element("section"), body = element("table");
    section.append(element("h2", "", s.name), element("p", "help", s.help), body);
    groups.set(s.name, (g = { section, body }));
    const after = [...groups.keys()].sort().find((n) => n > s.name);
    $("groups").insertBefore(section, after ? groups.get(after).section : null);
  }
  return g;
}

const svg = "http://www.w3.org/2000/svg";

function row(s) {
  const r = element("tr"), value = element("td", "v"), plot = element("td", "p");
  const picture = document.createElementNS(svg, "svg"), line = document.createElementNS(svg, "polyline");
  picture.setAttribute("viewBox", "0 0 220 26");
  picture.append(line);
  plot.append(picture);
  r.append(element("td", "labels", s.labels.replaceAll('"', "") || s.name), value, plot);
  group(s).body.append(r);
  return { r, value, line };
}

function draw(s) {
  s.row ||= row(s);
  const now = s.history.at(-1);
  s.row.value.textContent = s.type === "counter" ? (now === undefined ? "…" : number(now) + "/s") : number(s.last);
  s.row.value.title = s.type === "counter" ? "total " + s.last : String(s.last);
  const top = Math.max(...s.history, 1e-9);
  s.row.line.setAttribute("points", s.history.map((v, i) =>
    ((points - s.history.length + i) * 220 / points).toFixed(1) + "," + (24 - Math.max(v, 0) / top * 22).toFixed(1)).join(" "));
}

function visible(s) {
  const words = $("filter").value.toLowerCase();
  if (words && !(s.name + s.labels).toLowerCase().includes(words)) return false;
  if (!$("runtime").checked && /^(go|process|promhttp)_/.test(s.name)) return false;
  return $("zero").checked || s.last !== 0;
}

function show() {
  const shown = new Set();
  for (const s of series.values()) {
    const on = visible(s);
    if (on) {
      draw(s);
      shown.add(s.name);
    }
    if (s.row) s.row.r.hidden = !on;
  }
  for (const [name, g] of groups) g.section.hidden = !shown.has(name);
}

async function tick() {
  const badge = $("ready");
  try {
    const ready = await fetch("readyz");
    badge.textContent = (await ready.text()).trim() || "ready";
    badge.className = "badge " + (ready.ok ? "ok" : "bad");
    const metrics = await fetch("metrics");
    if (!metrics.ok) throw new Error(metrics.status);
    const now = performance.now();
    for (const sample of fold(parse(await metrics.text()))) take(sample, now);
    for (const [key, s] of series) { // a backend that left must not stay as it was
      if (s.at === now) continue;
      s.row?.r.remove();
      series.delete(key);
    }
    show();
  } catch {
    badge.textContent = "does not answer";
    badge.className = "badge bad";
  }
}

for (const id of ["filter", "zero", "runtime"]) $(id).addEventListener("input", show);
tick();
setInterval(tick, period);
