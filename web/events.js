// The log records of the process, the newest first.
import { element, setText, textColumn } from "./dom.js";
import { SortedTable } from "./table.js";

const most = 200;

export class Events {
  constructor(place) {
    this.events = [];
    this.newest = 0;
    this.level = element("select", {}, element("option", { value: "" }, "all"), element("option", { value: "WARN" }, "warnings and errors"), element("option", { value: "ERROR" }, "errors"));
    this.note = element("span", { class: "dim", role: "status" });
    place.append(element("div", { class: "controls" }, element("label", {}, "Level ", this.level), this.note));
    const box = element("div", { class: "scroll tall", role: "region", "aria-label": "Events", tabindex: "0" });
    place.append(box);
    this.table = new SortedTable(box, "", [
      { title: "time", value: (e) => e.number, text: (e) => new Date(e.time).toLocaleTimeString("en-GB"), numeric: true },
      textColumn("level", (e) => e.level, { state: (e) => ({ ERROR: "bad", WARN: "warn" })[e.level] }),
      textColumn("event", (e) => e.event),
      textColumn("message", (e) => e.message, { wide: true }),
      textColumn("attributes", (e) => Object.entries(e.attributes || {}).map(([k, v]) => k + "=" + v).join(" "), { wide: true }),
    ], [0, true], null);
    this.level.addEventListener("change", () => this.show());
  }

  // update takes the records after this.newest.
  update(list) {
    if (list.events.length && list.events[0].number < this.newest) this.events = []; // another process answers
    this.events.push(...list.events.map((e) => ({ key: String(e.number), ...e })));
    if (this.events.length > most) this.events.splice(0, this.events.length - most);
    this.newest = this.events.at(-1)?.number || 0;
    this.forgotten = list.forgotten;
    this.show();
  }

  show() {
    const levels = { WARN: ["WARN", "ERROR"], ERROR: ["ERROR"] }[this.level.value];
    const shown = this.events.filter((e) => !levels || levels.includes(e.level));
    this.table.update(shown);
    setText(this.note, shown.length + " shown" + (this.forgotten ? ", " + this.forgotten + " older ones are only in the log" : ""));
  }
}
