// Tables that are kept up to date in place: rows stay the same elements, so that focus, selection and a screen reader's place
// in them survive an update.

import { element, setText, whole } from "./dom.js";

// A column: {state: row => bad, warn or nothing, title, value: row => number or string to sort by, text: row => string, numeric, bar: row => percent, wide, hint}.
// The first one is the row's header; with pick a button that calls pick(row).
export class SortedTable {
  constructor(place, caption, columns, sort, pick) {
    this.columns = columns;
    this.sort = { column: sort[0], down: sort[1] };
    this.pick = pick;
    this.rows = new Map(); // key -> {tr, cells, row}
    this.words = []; // a row that lacks one of them is hidden
    this.shown = 0;
    this.maximum = Infinity; // rows in the table; the others are counted in hidden
    this.hidden = 0;
    this.caption = element("caption", {}, caption);
    const head = element("tr");
    this.heads = columns.map((c, i) => {
      const button = element("button", { type: "button" }, c.title);
      if (c.hint) button.title = c.hint;
      button.addEventListener("click", () => this.sortBy(i));
      const th = element("th", { scope: "col" }, button);
      if (c.numeric) th.className = "n";
      head.append(th);
      return th;
    });
    this.body = element("tbody");
    const name = caption || place.getAttribute("aria-label"); // a caption that comes later, or the name of the place
    place.append(element("table", name ? { "aria-label": name } : {}, this.caption, element("thead", {}, head), this.body));
    this.mark();
  }

  sortBy(i) {
    const down = this.sort.column === i ? !this.sort.down : Boolean(this.columns[i].numeric);
    this.sort = { column: i, down };
    this.mark();
    this.order();
  }

  mark() {
    this.heads.forEach((th, i) => {
      if (i === this.sort.column) th.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
  }

  add(key) {
    const tr = element("tr"), held = { tr, cells: [], row: null };
    this.columns.forEach((c, i) => {
      const cell = i === 0 ? element("th", { scope: "row" }) : element("td");
      cell.className = (c.numeric ? "n" : "") + (c.wide ? " wide" : "");
      let text = cell;
      if (i === 0 && this.pick) {
        text = element("button", { type: "button", "aria-pressed": "false" });
        text.addEventListener("click", () => this.pick(held.row));
        cell.append(text);
      } else if (c.bar) {
        text = element("span");
        held.bar = element("span", { class: "bar", "aria-hidden": "true" });
        cell.append(text, held.bar);
      }
      held.cells.push(text);
      tr.append(cell);
    });
    this.rows.set(key, held);
    return held;
  }

  // filter hides rows that do not hold all words, in any of their cells that are no number.
  filter(words) {
    this.words = words;
    this.shown = 0;
    for (const { tr, row } of this.rows.values()) {
      tr.hidden = !this.fits(row);
      if (!tr.hidden) this.shown++;
    }
  }

  // choose returns the rows that the table has room for: those that the filter leaves, in the order of the table.
  choose(rows) {
    this.hidden = 0;
    if (rows.length <= this.maximum) return rows;
    const fit = this.words.length ? rows.filter((row) => this.fits(row)) : rows.slice();
    fit.sort((a, b) => this.compare(a, b));
    this.hidden = Math.max(0, fit.length - this.maximum);
    return fit.slice(0, this.maximum);
  }

  fits(row) {
    const text = this.columns.filter((c) => !c.numeric).map((c) => c.text(row)).join(" ").toLowerCase();
    return this.words.every((w) => text.includes(w));
  }

  update(rows, picked) {
    const seen = new Set();
    for (const row of this.choose(rows)) {
      seen.add(row.key);
      const held = this.rows.get(row.key) || this.add(row.key);
      held.row = row;
      this.columns.forEach((c, i) => {
        setText(held.cells[i], c.text(row));
        if (c.state) held.cells[i].className = [c.wide ? "wide" : "", c.state(row) ? "state-" + c.state(row) : ""].join(" ").trim();
        if (c.bar) held.bar.style.setProperty("--w", c.bar(row).toFixed(1));
      });
      held.tr.classList.toggle("off", row.off ?? Boolean(row.state && row.state !== "live"));
      if (this.pick) held.cells[0].setAttribute("aria-pressed", String(row.key === picked));
    }
    for (const [key, held] of this.rows) {
      if (seen.has(key)) continue;
      held.tr.remove();
      this.rows.delete(key);
    }
    this.filter(this.words);
    this.order();
  }

  compare(a, b) {
    const by = ({ value }) => {
      const x = value(a), y = value(b);
      return typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
    };
    return by(this.columns[this.sort.column]) * (this.sort.down ? -1 : 1) || by(this.columns[0]) || a.key.localeCompare(b.key);
  }

  order() {
    const sorted = [...this.rows.values()].sort((a, b) => this.compare(a.row, b.row));
    const focused = document.activeElement;
    let moved = false;
    sorted.forEach((held, i) => {
      if (this.body.children[i] === held.tr) return;
      this.body.insertBefore(held.tr, this.body.children[i] || null);
      moved = true;
    });
    if (moved && focused !== document.activeElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }
}

// drawMatrix shows a state's matrix: {servers, rows: [{client, cells, others, sum, by_peer}], others, hidden}.
export function drawMatrix(place, note, m, words) {
  const shape = JSON.stringify([m.servers, m.others > 0, m.rows.map((r) => r.client)]);
  if (place.dataset.shape !== shape) {
    place.dataset.shape = shape;
    const heads = ["client", ...m.servers, ...(m.others ? [m.others + " more"] : []), "sum"];
    const head = element("tr", {}, ...heads.map((t, i) => element("th", { scope: "col", title: t, class: i ? "n" : "" }, t)));
    const line = (title, count, name) => element("tr", { class: name }, element("th", { scope: "row", title }, title),
      ...Array.from({ length: count }, () => element("td", { class: "n" })));
    const body = element("tbody", {}, ...m.rows.map((r) => line(r.client, heads.length - 1, "")));
    place.replaceChildren(element("table", {}, element("caption", { class: "unseen" }, "Connections of each client with each server"),
      element("thead", {}, head), body, element("tfoot", {}, line("sum", heads.length - 1, "sum"))));
  }
  const most = Math.max(1, ...m.rows.flatMap((r) => r.cells));
  const sums = new Array(m.servers.length + (m.others ? 2 : 1)).fill(0);
  const lines = place.querySelectorAll("tbody tr");
  m.rows.forEach((r, i) => {
    lines[i].hidden = !words.every((w) => r.client.toLowerCase().includes(w));
    const values = [...r.cells, ...(m.others ? [r.others] : []), r.sum];
    const cells = lines[i].querySelectorAll("td");
    values.forEach((v, j) => {
      sums[j] += v;
      setText(cells[j], whole(v));
      if (j < r.cells.length) {
        cells[j].classList.add("cell");
        cells[j].style.setProperty("--h", (v / most * 100).toFixed(0));
      }
    });
  });
  place.querySelectorAll("tfoot td").forEach((td, j) => setText(td, whole(sums[j])));
  let text = "Connections of each client with each server, as the clients report.";
  if (m.rows.some((r) => r.by_peer)) text += " Rows “run …” are clients that do not report: the servers reported them.";
  if (m.hidden) text += " " + whole(m.hidden) + " clients more are not shown.";
  setText(note, text);
}
