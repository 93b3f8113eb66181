// Elements, and how values are written.

export const $ = (id) => document.getElementById(id);

export function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

const svgSpace = "http://www.w3.org/2000/svg";

export function shape(tag, attributes, text) {
  const e = document.createElementNS(svgSpace, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

export const whole = (v) => Math.round(v).toLocaleString("en");
export const counted = (n, one) => whole(n) + " " + (n === 1 ? one : one + "s");
export const figure = (v) => (Math.abs(v) >= 100 || Number.isInteger(v) ? whole(v) : v.toPrecision(3));
export const unknown = "–";
export const known = (write) => (v) => (v === null || v === undefined || Number.isNaN(v) ? unknown : write(v));
export const percent = (v) => (v > 0 && v < 1 ? +v.toPrecision(2) : v.toFixed(v > 0 && v < 10 ? 1 : 0)) + " %";
export const perSecond = known((v) => figure(v) + "/s");

export function bytes(v) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; Math.abs(v) >= 1024 && i < units.length - 1; i++) v /= 1024;
  return (i === 0 ? figure(v) : v.toPrecision(3)) + " " + units[i];
}

export const bytesPerSecond = known((v) => bytes(v) + "/s");

export function seconds(v) {
  if (v === 0) return "0 s";
  if (v < 0.001) return +(v * 1e6).toPrecision(3) + " µs";
  if (v < 1) return +(v * 1e3).toPrecision(3) + " ms";
  if (v < 120) return +v.toPrecision(3) + " s";
  return v < 7200 ? Math.round(v / 60) + " min" : +(v / 3600).toFixed(1) + " h";
}

export function ago(s) {
  if (s < 1) return "now";
  if (s < 90) return "−" + Math.round(s) + " s";
  return s < 5400 ? "−" + +(s / 60).toFixed(1) + " min" : "−" + +(s / 3600).toFixed(1) + " h";
}

// A column of numbers for a SortedTable.
export function column(title, value, text, more) {
  return { title, value: (r) => value(r) ?? -1, text: (r) => known(text)(value(r)), numeric: true, ...more };
}

export function textColumn(title, value, more) {
  return { title, value: (r) => value(r) || "", text: (r) => value(r) || "", ...more };
}

// showCards writes a list of [title, value, more, bad] into a <dl>.
export function showCards(place, list) {
  if (place.children.length !== list.length) {
    place.replaceChildren(...list.map(([title]) => element("div", {}, element("dt", {}, title), element("dd", {}, element("span"), " ", element("small")))));
  }
  list.forEach(([title, value, more, bad], i) => {
    const dd = place.children[i].lastChild;
    setText(place.children[i].firstChild, title);
    setText(dd.firstChild, value);
    setText(dd.lastChild, more || "");
    dd.classList.toggle("bad", Boolean(bad));
  });
}
