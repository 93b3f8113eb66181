// What a load balancer shows: `weir lb run` and `weir nat`.
import { bytes, bytesPerSecond, column, counted, element, figure, known, percent, perSecond, seconds, setText, textColumn, unknown, whole } from "./dom.js";
import { Announcements } from "./announce.js";
import { SortedTable } from "./table.js";

const rowsShown = 300;
const badStates = { up: "", draining: "warn", fail_open: "warn", down: "bad", no_backend: "bad", stale: "bad" };
const toBackend = { direction: "to_backend" }, fromBackend = { direction: "from_backend" };

export class Balancer {
  constructor(page) {
    this.services = servicesTable(page.region("services", "Services"));
    this.backends = this.backendsTable(page);
    this.announcements = new Announcements(page);
    this.flows = new Flows(page);
    this.paths = ["/flows"];
  }

  backendsTable(page) {
    const place = page.section("backends", "Backends");
    const filter = element("input", { type: "search", placeholder: "name, address or state", autocomplete: "off", spellcheck: "false" });
    this.note = element("span", { class: "dim", role: "status" });
    place.append(element("search", { class: "controls" }, element("label", {}, "Filter backends ", filter), this.note));
    const table = new SortedTable(page.scroll(place, "Backends", "tall"), "", [
      textColumn("backend", (r) => r.name),
      textColumn("service", (r) => r.service),
      textColumn("address", (r) => r.address),
      textColumn("state", (r) => r.state, { state: (r) => badStates[r.state] }),
      textColumn("override", (r) => r.override),
      column("weight", (r) => r.weight, whole),
      column("share", (r) => r.share * 100, percent, { bar: (r) => r.share * 100, hint: "of new flows" }),
      column("packets", (r) => r.packets, perSecond, { hint: "to the backend" }),
      column("bytes", (r) => r.bytes, bytesPerSecond, { hint: "to the backend" }),
      column("replies", (r) => r.replies, perSecond, { hint: "packets from it, where the data path sees them" }),
      column("new flows", (r) => r.opened, perSecond),
      column("flows so far", (r) => r.flows, whole, { hint: "that it was given since the start" }),
    ], [1, false], null);
    table.maximum = rowsShown;
    filter.addEventListener("input", () => {
      table.words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      if (this.rows) this.showBackends();
    });
    return table;
  }

  showBackends() {
    this.backends.update(this.rows);
    const left = this.backends.shown + (this.backends.hidden ? " of " + (this.backends.shown + this.backends.hidden) : "");
    setText(this.note, this.backends.words.length || this.backends.hidden ? left + " shown" : "");
  }

  update({ status, metrics, answers }) {
    const services = status.services || [];
    const by = (name, where) => metrics.group(name, ["service", "backend"], where);
    const packets = by("weir_backend_packets_total", toBackend), octets = by("weir_backend_bytes_total", toBackend);
    const replies = by("weir_backend_packets_total", fromBackend), opened = by("weir_backend_flows_opened_total");
    this.rows = services.flatMap((s) => (s.backends || []).map((b) => {
      const key = s.name + "\n" + b.name;
      return {
        key, service: s.name, name: b.name, address: addressOf(b), state: b.state, override: [b.override, b.action].filter(Boolean).join(", "), weight: b.weight, share: b.share,
        packets: packets.get(key)?.rate, bytes: octets.get(key)?.rate, replies: replies.get(key)?.rate, opened: opened.get(key)?.rate, flows: opened.get(key)?.value, off: b.state === "down",
      };
    }));
    this.showBackends();
    this.services.update(services.map((s) => serviceRow(s, metrics, this.rows)));
    this.announcements.update(status.announce);
    if (answers["/flows"]) this.flows.update(answers["/flows"]);
  }

  query(path) {
    return path === "/flows" ? this.flows.query() : "";
  }

  cards({ status, metrics }) {
    const up = this.rows.filter((r) => r.state === "up").length;
    const forwarded = metrics.rate("weir_packets_total");
    const flows = metrics.sum("weir_table_entries", { table: "flows" }), size = metrics.sum("weir_table_size", { table: "flows" });
    const latency = metrics.quantile("weir_probe_duration_seconds", 0.5);
    return [
      ["configuration", String(status.config_generation ?? status.generation), status.error ? "last change refused" : status.unsaved ? "not in its file" : "snapshot " + status.generation + ", " + new Date(status.applied_at).toLocaleTimeString("en-GB"), Boolean(status.error)],
      ["services", whole((status.services || []).length), status.datapath],
      ["backends", up + " of " + this.rows.length, "take new flows", up < this.rows.length],
      ["flows", whole(flows), size ? "of at most " + whole(size) : "", size > 0 && flows > 0.9 * size],
      ["packets", perSecond(forwarded), ""],
      ["bytes to backends", bytesPerSecond(metrics.rate("weir_backend_bytes_total", toBackend)), ""],
      ["health probes", latency === null ? unknown : seconds(latency), "median"],
    ];
  }

  findings({ status }) {
    const found = [];
    if (status.error) found.push(["bad", "The last configuration was refused, the one before it is in force: " + status.error]);
    if (status.unsaved) found.push(["warn", "Run-time changes are not in the configuration file, and a restart loses them. weir lb diff shows them; weir lb save writes them; weir lb revert ends them."]);
    if (status.source?.error) found.push(["warn", "The config discovery service is not connected: " + status.source.error]);
    for (const s of status.services || []) {
      if (s.state === "no_backend") found.push(["bad", `Service ${s.name} has no backend that takes new flows. Look at probes, overrides and weights below.`]);
      if (s.state === "down") found.push(["bad", `Service ${s.name} is down by an override: weir lb undrain ${s.name}`]);
      if (s.state === "fail_open") found.push(["warn", `Service ${s.name}: all probes fail, so they are ignored. Look at the probe: ${s.health || ""}`]);
    }
    found.push(...this.announcements.findings(status.announce));
    const out = this.rows.filter((r) => r.state !== "up");
    for (const r of out.slice(0, 10)) found.push(["warn", `Backend ${r.name} of ${r.service} is ${r.override.startsWith(r.state) ? r.override : r.state + ": " + (r.override || "as configured")}`]);
    if (out.length > 10) found.push(["warn", out.length - 10 + " more backends take no new flows"]);
    return found;
  }

  headline({ status }) {
    return `${counted((status.services || []).length, "service")}, ${this.rows.filter((r) => r.state === "up").length} of ${this.rows.length} backends up`;
  }
}

function addressOf(b) {
  if (b.mark) return "mark " + b.mark;
  const address = b.address?.includes(":") ? `[${b.address}]` : b.address || "";
  return address + (b.port ? ":" + b.port : "") + (b.address2 ? " " + b.address2 : "");
}

function serviceRow(s, metrics, rows) {
  const own = rows.filter((r) => r.service === s.name), up = own.filter((r) => r.state === "up").length;
  const sum = (of) => own.reduce((n, r) => (r[of] === undefined || r[of] === null ? n : (n || 0) + r[of]), null);
  return {
    key: s.name, name: s.name, mode: s.mode, state: s.state, vips: (s.vips || []).slice(0, 3).join(", ") + (s.vips?.length > 3 ? " +" + (s.vips.length - 3) : ""),
    up, all: own.length, packets: metrics.rate("weir_packets_total", { service: s.name }), bytes: sum("bytes"), opened: sum("opened"), health: s.health || "none",
    affinity: s.affinity + (s.cid ? ", connection id" : ""), off: s.state === "down",
  };
}

function servicesTable(place) {
  return new SortedTable(place, "", [
    textColumn("service", (r) => r.name),
    textColumn("state", (r) => r.state, { state: (r) => badStates[r.state] }),
    textColumn("mode", (r) => r.mode),
    textColumn("VIPs", (r) => r.vips),
    { title: "backends up", value: (r) => r.up, text: (r) => r.up + " of " + r.all, numeric: true },
    column("packets", (r) => r.packets, perSecond),
    column("bytes", (r) => r.bytes, bytesPerSecond),
    column("new flows", (r) => r.opened, perSecond),
    textColumn("affinity", (r) => r.affinity),
    textColumn("probe", (r) => r.health),
  ], [0, false], null);
}

// Flows asks /flows for those that its fields select.
class Flows {
  constructor(page) {
    const place = page.section("flows", "Flows");
    this.fields = {};
    const controls = element("search", { class: "controls" });
    for (const [name, hint] of [["client", "address or prefix"], ["service", "name"], ["backend", "name"]]) {
      this.fields[name] = element("input", { type: "search", placeholder: hint, autocomplete: "off", spellcheck: "false" });
      controls.append(element("label", {}, name + " ", this.fields[name]));
      this.fields[name].addEventListener("change", () => page.now());
    }
    this.note = element("span", { class: "dim", role: "status" });
    controls.append(this.note);
    place.append(controls);
    const left = (r) => (r.expires_s < 0 ? Infinity : r.expires_s);
    this.table = new SortedTable(page.scroll(place, "Flows", "tall"), "", [
      textColumn("client", (r) => r.client), textColumn("protocol", (r) => r.protocol), textColumn("VIP", (r) => r.vip), textColumn("service", (r) => r.service),
      textColumn("backend", (r) => r.backend), textColumn("state", (r) => r.state), { ...column("expires in", left, seconds), text: (r) => (r.expires_s < 0 ? "never" : seconds(Math.round(r.expires_s))) },
      column("packets", (r) => r.packets, known(figure)), column("bytes", (r) => r.bytes, known(bytes)),
    ], [0, false], null);
  }

  query() {
    const query = new URLSearchParams({ limit: 100 });
    for (const [name, field] of Object.entries(this.fields)) if (field.value.trim()) query.set(name, field.value.trim());
    return "?" + query;
  }

  update(list) {
    if (list.error) {
      setText(this.note, list.error);
      return;
    }
    this.table.update(list.flows.map((f) => ({ key: [f.protocol, f.client, f.vip].join(" "), off: false, ...f })));
    setText(this.note, list.flows.length + (list.more ? " shown, there are more" : " flows"));
  }
}
