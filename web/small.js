// What the parts with few figures show: an operator, a service of TURN credentials, a tunnel endpoint.
import { bytesPerSecond, column, counted, perSecond, seconds, textColumn, unknown, whole } from "./dom.js";
import { SortedTable } from "./table.js";

// table is a section with a table, which is hidden while it has no rows.
function table(page, id, title, columns) {
  const section = page.section(id, title), shown = new SortedTable(page.scroll(section, title, "tall"), "", columns, [0, false], null);
  return (rows) => {
    section.hidden = rows.length === 0;
    shown.update(rows);
  };
}

// Gateways that speak STUNner's protocol do not report what they run.
const planeState = (p) => (!p.applied ? "not reported" : p.applied === p.published ? "current" : "behind");

export class Operator {
  constructor(page) {
    this.show = table(page, "planes", "Data planes", [
      textColumn("data plane", (r) => r.name), textColumn("controller", (r) => r.controller),
      textColumn("state", (r) => r.state, { state: (r) => (r.state === "behind" ? "warn" : ""), hint: "whether all of its processes run what was published" }),
      textColumn("published", (r) => r.published, { hint: "revision of the configuration" }), textColumn("applied", (r) => r.applied || unknown, { hint: "revision that all of its processes run" }),
    ]);
    this.paths = [];
  }

  update({ status }) {
    this.rows = status.controllers.flatMap((c) => (c.planes || []).map((p) => ({ ...p, key: c.name + "\n" + p.name, controller: c.name, state: planeState(p), off: false })));
    this.show(this.rows);
  }

  cards({ status, metrics }) {
    const behind = this.rows.filter((r) => r.state === "behind").length, rate = (name) => metrics.rate("weir_operator_" + name + "_total");
    const [median, high] = [0.5, 0.99].map((q) => metrics.quantile("weir_operator_write_duration_seconds", q));
    const cards = [
      ["role", status.leader ? "leader" : "stand-by", status.leader ? "writes" : "another operator writes"],
      ["objects", whole(status.objects), "of the last render"],
      ["renders", perSecond(rate("renders")), whole(status.renders) + " since the start"],
      ["failed renders", whole(status.failures), "since the start", Boolean(status.error)],
      ["objects written", perSecond(rate("objects_applied")), ""],
      ["statuses written", perSecond(rate("status_writes")), ""],
      ["duration of writes", median === null ? unknown : seconds(median), high === null ? "median" : "median; 99 %: " + seconds(high)],
    ];
    if (this.rows.length) cards.push(["data planes", whole(this.rows.length), behind ? whole(behind) + " behind" : "none is behind", behind > 0]);
    return cards;
  }

  findings({ status, metrics }) {
    const found = [];
    if (status.error) found.push(["bad", "The last render is not complete, it is tried again: " + status.error]);
    const kept = metrics.sum("weir_operator_turn_gateways_kept");
    if (kept) found.push(["warn", `Of ${whole(kept)} TURN Gateways the class or the GatewayConfig is wrong: what they had before stays in force. Look at their conditions: kubectl describe gateway`]);
    for (const r of this.rows.filter((p) => p.state === "behind").slice(0, 10)) found.push(["warn", `Data plane ${r.name} runs revision ${r.applied}, not yet ${r.published}.`]);
    return found;
  }

  headline({ status }) {
    return `${status.leader ? "leader" : "stand-by"}, ${counted(status.objects, "object")}, ${counted(this.rows.length, "data plane")}`;
  }
}

export class Credentials {
  constructor() {
    this.paths = [];
  }

  update() {}

  cards({ status, metrics }) {
    const of = (title, name, count, bad) => [title, perSecond(metrics.rate(`weir_turn_auth_${name}_total`)), whole(count) + " since the start", bad && count > 0];
    return [
      ["gateways", whole(status.configs), "with credentials", status.configs === 0],
      ["config discovery", status.discovery.connected ? "connected" : "away", "", !status.discovery.connected],
      of("answered", "issued", status.issued), of("without the key", "refused", status.refused, true), of("wrong parameter", "wrong", status.wrong, true),
      of("no listener fits", "unmatched", status.unmatched, true), of("unreadable configurations", "ignored", status.ignored, true),
    ];
  }

  findings({ status: { discovery, configs, ignored } }) {
    const found = [];
    if (!discovery.connected) found.push(["bad", `The config discovery service ${discovery.service} is not connected, the latest configurations stay in force: ${discovery.error || ""}`]);
    if (configs === 0) found.push(["warn", "No gateway has credentials: there is nothing to give out. Look at the operator, and at --discovery."]);
    if (ignored > 0) found.push(["warn", `${whole(ignored)} configurations could not be read: the log names them.`]);
    return found;
  }

  headline({ status }) {
    return `${counted(status.configs, "gateway")}, ${counted(status.issued, "request")} answered`;
  }
}

export class TunnelEnd {
  constructor(page) {
    this.show = table(page, "outcomes", "Packets on the tunnel", [
      textColumn("outcome", (r) => r.outcome), column("packets", (r) => r.packets, perSecond), column("bytes", (r) => r.bytes, bytesPerSecond, { hint: "of frames, tunnel included" }),
      column("packets so far", (r) => r.total, whole),
    ]);
    this.paths = [];
  }

  update({ status, metrics }) {
    const rate = (what, outcome) => metrics.rate(`weir_decap_${what}_total`, { outcome });
    this.show(Object.entries(status.counters || {}).map(([outcome, count]) => ({
      key: outcome, outcome: outcome.replaceAll("_", " "), packets: rate("packets", outcome), bytes: rate("bytes", outcome), total: count.packets,
    })));
  }

  cards({ status, metrics }) {
    return [
      ["interface", status.interface, "program at " + status.hook],
      ["packets", perSecond(metrics.rate("weir_decap_packets_total")), ""],
      ["bytes", bytesPerSecond(metrics.rate("weir_decap_bytes_total")), "tunnel included"],
      ["running for", seconds(Math.round(status.seconds)), ""],
    ];
  }

  findings({ status }) {
    return status.error ? [["bad", "The counters could not be read: " + status.error]] : [];
  }

  headline({ status }) {
    return `opens tunnels from ${status.from.join(", ")} at ${status.interface}`;
  }
}
