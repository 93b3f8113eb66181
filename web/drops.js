// What is dropped, refused or lost, why, and what to do.
import { column, element, figure, perSecond, textColumn, whole } from "./dom.js";
import { packetReasons, gatewayReasons } from "./reasons.js";
import { SortedTable } from "./table.js";

// Counters of losses by their names; those that reasons count are left out.
const losses = /_(dropped|refused|failed|failures|evicted|errors|overflows|overflowed|overflow|lost|malformed|full|exhausted|drops|abandoned|expired|missing_ids|bad_macs|bad_forward|bad_backward|strangers|displaced|withheld|unknown|unknown_cids|forged|forged_dropped|amplified|timed_out|aborted|overloaded|slow|truncated|short)(_\w+)?_total$/;
const noLoss = /^(go_|process_|promhttp_|weir_(turn_listener_reasons|packets|bytes)_total|weir_(coap_engine_sessions|table)_expired_total)/;

// What to do about counters, by a part of the name. The first one that fits counts.
const remedies = [
  [/queue_dropped|queue_user_dropped/, "More queues, a longer queue or a larger receive buffer; docs/nfqueue.md."],
  [/kernel_drops|overflow/, "The process reads too slowly for bursts: more CPU time, or a larger receive buffer (net.core.rmem_max)."],
  [/weir_table_(refused|evicted)/, "Raise the limit of this table, or find who fills it: weir lb flows; docs/tables.md."],
  [/sessions_full|engine_evicted/, "The table of sessions is full: raise its limit, or add nodes."],
  [/bad_macs|forged|replays/, "Somebody forges or repeats records, or keys differ. Look at the sources."],
  [/handshakes_failed/, "Compare keys and cipher suites of clients and server: weir coap ping shows why."],
  [/unknown_cids|unknown_address/, "Clients of sessions that are gone; they make new ones. If there are many, look for a restart or a wrong node id."],
  [/cluster_(strangers|bad_|link_)/, "Nodes have different lists or secrets, or another machine sends to the internal address."],
  [/config_discovery_failures/, "Look at the operator, and at the address of its config discovery service."],
  [/config_failures/, "Correct the configuration: the log and the status have the line and the key."],
  [/send_errors|reply_errors/, "Look at routes to the peer, and at ulimit -n."],
  [/exhausted/, "Raise ulimit -n, or add addresses."],
  [/udp_refused/, "Start the program of the backend, or take it out: weir lb down."],
  [/admin_connections/, "Too many programs connect to the admin address."],
];

export class Drops {
  constructor(place) {
    this.everything = element("input", { type: "checkbox" });
    this.note = element("p", { class: "dim" }, "Nothing was dropped or refused.");
    place.append(element("div", { class: "controls" }, element("label", {}, this.everything, " also show what was forwarded or answered")), this.note);
    this.box = element("div", { class: "scroll", role: "region", "aria-label": "Drops and refusals", tabindex: "0" });
    place.append(this.box);
    this.table = new SortedTable(this.box, "", [
      textColumn("reason", (r) => r.reason),
      textColumn("what happens", (r) => r.action, { state: (r) => (r.loss && r.rate > 0 ? "bad" : "") }),
      column("rate", (r) => r.rate, perSecond),
      column("total", (r) => r.total, whole),
      textColumn("where", (r) => r.where),
      textColumn("meaning", (r) => r.meaning, { wide: true }),
      textColumn("what to do", (r) => r.remedy, { wide: true }),
    ], [3, true], null);
    this.everything.addEventListener("change", () => this.metrics && this.update(this.metrics));
  }

  update(metrics) {
    this.metrics = metrics;
    const rows = [...packets(metrics), ...messages(metrics), ...counters(metrics)].filter((r) => r.total > 0 && (r.loss || this.everything.checked));
    this.table.update(rows);
    this.box.hidden = rows.length === 0;
    this.note.hidden = rows.length > 0;
    this.rows = rows;
  }
}

// packets are the reasons of a balancer, of all its data paths and services.
function packets(metrics) {
  return grouped(metrics, "weir_packets_total", "service", (reason) => {
    const [action, meaning, remedy] = packetReasons[reason] || ["", "", ""];
    return { action, meaning, remedy, loss: action === "drop" };
  });
}

const harmless = new Set(["challenged", "deleted", "moved", "stopped"]);

function messages(metrics) {
  return grouped(metrics, "weir_turn_listener_reasons_total", "listener", (reason) => {
    const [meaning, remedy] = gatewayReasons[reason] || ["", ""];
    return { action: "", meaning, remedy, loss: !harmless.has(reason) && meaning !== "" };
  });
}

function grouped(metrics, name, of, look) {
  const where = new Map();
  for (const key of metrics.group(name, ["reason", of]).keys()) {
    const [reason, at] = key.split("\n");
    where.set(reason, [...(where.get(reason) || []), at || "no service"]);
  }
  return [...metrics.group(name, ["reason"])].map(([reason, { value, rate }]) => {
    const places = where.get(reason);
    return { key: name + reason, reason, total: value, rate, where: places.slice(0, 3).join(", ") + (places.length > 3 ? " and " + (places.length - 3) + " more" : ""), ...look(reason) };
  });
}

// counters are all other counters of losses, by their help texts.
function counters(metrics) {
  return [...metrics.byName].filter(([name]) => losses.test(name) && !noLoss.test(name)).map(([name, samples]) => {
    const remedy = remedies.find(([fits]) => fits.test(name));
    const where = [...new Set(samples.filter((s) => s.value > 0).map((s) => Object.values(s.labels).join(" ")).filter(Boolean))];
    return {
      key: name, reason: name.replace(/^weir_/, "").replace(/_total$/, ""), action: "", total: metrics.sum(name), rate: metrics.rate(name), loss: true,
      where: where.slice(0, 3).join(", ") + (where.length > 3 ? " and " + (where.length - 3) + " more" : ""), meaning: samples[0].help, remedy: remedy ? remedy[1] : "",
    };
  });
}

export function dropCard(drops) {
  const rate = drops.rows.filter((r) => r.loss).reduce((n, r) => n + (r.rate || 0), 0);
  return ["dropped or refused", figure(rate) + "/s", "", rate > 0];
}
