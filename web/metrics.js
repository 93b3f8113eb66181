// What /metrics says, and how fast its counters grow.

// parse reads the Prometheus text format, as far as client_golang writes it.
export function parse(text) {
  const types = new Map(), helps = new Map(), found = [];
  for (const line of text.split("\n")) {
    let m;
    if ((m = /^# TYPE (\S+) (\S+)/.exec(line))) types.set(m[1], m[2]);
    else if ((m = /^# HELP (\S+) (.*)/.exec(line))) helps.set(m[1], m[2]);
    else if ((m = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line))) {
      const family = types.has(m[1]) ? m[1] : m[1].replace(/_(sum|count|bucket)$/, "");
      found.push({
        name: m[1], text: m[2] || "", value: Number(m[3].replace("Inf", "Infinity")),
        type: m[1] !== family ? "counter" : types.get(family) || "untyped", family, help: helps.get(family) || "",
      });
    }
  }
  return found;
}

const escapes = { n: "\n", "\\": "\\", '"': '"' };

function labelsOf(text) {
  const labels = {};
  for (const [, name, value] of text.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value.replace(/\\(.)/g, (_, c) => escapes[c] ?? c);
  return labels;
}

// quantile interpolates inside a bucket; what lies above the last bound counts as that bound; null: nothing came.
export function quantile(buckets, q) {
  const wanted = q * buckets.at(-1)[1];
  let low = 0, below = 0;
  for (const [le, n] of buckets) {
    if (wanted > 0 && n >= wanted) return Number.isFinite(le) ? low + (le - low) * (wanted - below) / (n - below) : low;
    if (Number.isFinite(le)) low = le;
    below = n;
  }
  return null;
}

export class Metrics {
  constructor() {
    this.samples = [];
    this.byName = new Map();
    this.before = new Map(); // name{labels} -> {value, at}
  }

  // update takes a new text; now is in milliseconds. A counter has a rate from its second time on; one that went back began again.
  update(text, now) {
    const before = this.before, first = before.size === 0;
    this.samples = parse(text);
    this.byName = new Map();
    this.before = new Map();
    for (const s of this.samples) {
      const key = s.name + "{" + s.text + "}", last = before.get(key);
      s.key = key;
      s.labels = labelsOf(s.text);
      if (s.type === "counter" || s.name.endsWith("_bucket")) {
        const from = last ? last.value : 0; // a reason that happens for the first time was 0
        s.grown = last || !first ? (s.value >= from ? s.value - from : s.value) : null;
        const at = last ? last.at : this.at;
        s.rate = s.grown === null || !(now > at) ? null : s.grown / (now - at) * 1000;
      }
      this.before.set(key, { value: s.value, at: now });
      if (!this.byName.has(s.name)) this.byName.set(s.name, []);
      this.byName.get(s.name).push(s);
    }
    this.at = now;
  }

  all(name, where = {}) {
    const wanted = Object.entries(where);
    return (this.byName.get(name) || []).filter((s) => wanted.every(([k, v]) => s.labels[k] === v));
  }

  has(name) {
    return this.byName.has(name);
  }

  sum(name, where) {
    return this.all(name, where).reduce((n, s) => n + s.value, 0);
  }

  rate(name, where) {
    const found = this.all(name, where);
    return found.length && found.every((s) => s.rate === null) ? null : found.reduce((n, s) => n + (s.rate || 0), 0);
  }

  // group sums by labels: a map from their values, joined by a newline, to {value, rate}.
  group(name, labels, where) {
    const sums = new Map();
    for (const s of this.all(name, where)) {
      const key = labels.map((l) => s.labels[l] ?? "").join("\n"), sum = sums.get(key) || { value: 0, rate: null };
      sum.value += s.value;
      if (s.rate !== null && s.rate !== undefined) sum.rate = (sum.rate || 0) + s.rate;
      sums.set(key, sum);
    }
    return sums;
  }

  // quantile is that of what a histogram has observed since the last update; null: nothing.
  quantile(name, q, where) {
    const grown = new Map();
    for (const s of this.all(name + "_bucket", where)) {
      const le = Number(s.labels.le.replace("Inf", "Infinity"));
      grown.set(le, (grown.get(le) || 0) + (s.grown || 0));
    }
    return grown.size ? quantile([...grown].sort(([a], [b]) => a - b), q) : null;
  }
}
