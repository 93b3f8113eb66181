// What a load balancer announces of its addresses: prefixes, BGP neighbours and virtual routers.
import { column, seconds, textColumn, whole } from "./dom.js";
import { SortedTable } from "./table.js";

const prefixStates = { announced: "", retiring: "warn", withdrawn: "bad" }, routerStates = { active: "", backup: "", down: "bad" };
const since = (time) => Math.max(0, Math.round((Date.now() - Date.parse(time)) / 1000));
const router = (r) => `virtual router ${r.vrid} on ${r.interface} (${r.family})`;
const shownFindings = 10;

export class Announcements {
  constructor(page) {
    const table = (id, title, columns) => {
      const place = page.section(id, title);
      place.hidden = true;
      return { place, table: new SortedTable(page.scroll(place, title, "tall"), "", columns, [0, false], null) };
    };
    this.prefixes = table("prefixes", "Announced prefixes", [
      textColumn("prefix", (r) => r.prefix), textColumn("state", (r) => r.state, { state: (r) => prefixStates[r.state] }),
      textColumn("services", (r) => r.services.join(", "), { wide: true }), textColumn("why not", (r) => r.reason, { wide: true }),
    ]);
    this.neighbours = table("neighbours", "BGP neighbours", [
      textColumn("neighbour", (r) => r.address), column("AS", (r) => r.as, String), textColumn("state", (r) => r.state, { state: (r) => (r.state === "established" ? "" : "bad") }),
      column("for", (r) => r.for, seconds), textColumn("BFD", (r) => r.bfd || "off", { state: (r) => (!r.bfd || r.bfd === "up" ? "" : "bad") }),
      column("advertised", (r) => r.advertised, whole, { hint: "prefixes that the neighbour was sent" }), column("received", (r) => r.received, whole, { hint: "prefixes; none is used" }),
      column("sessions lost", (r) => r.losses, whole), textColumn("problem", (r) => r.problem, { wide: true }),
    ]);
    this.routers = table("routers", "Virtual routers (VRRP)", [
      textColumn("interface", (r) => r.interface), column("number", (r) => r.vrid, whole), textColumn("family", (r) => r.family),
      textColumn("state", (r) => r.state, { state: (r) => routerStates[r.state] }), column("for", (r) => r.for, seconds), column("priority", (r) => r.priority, whole),
      textColumn("addresses", (r) => (r.addresses || []).join(", ")), textColumn("other router", (r) => (r.peer ? `${r.peer.address}, priority ${r.peer.priority}` : "none")),
      column("became active", (r) => r.entered?.active || 0, whole, { hint: "times since the start" }), textColumn("problem", (r) => r.problem || r.reason, { wide: true }),
    ]);
  }

  update(announce) {
    const show = ({ place, table }, rows) => {
      place.hidden = rows.length === 0;
      table.update(rows.map((r) => ({ for: since(r.since), off: false, ...r })));
    };
    show(this.prefixes, (announce?.prefixes || []).map((p) => ({ ...p, key: p.prefix, services: p.services || [] })));
    show(this.neighbours, (announce?.bgp?.neighbours || []).map((n) => ({ ...n, key: n.address })));
    show(this.routers, (announce?.vrrp || []).map((r) => ({ ...r, key: [r.interface, r.vrid, r.family].join(" ") })));
  }

  findings(announce) {
    if (!announce) return [];
    const found = [];
    if (announce.error) found.push(["bad", "Announcements could not be changed, it is tried again: " + announce.error]);
    if (announce.state !== "serving") found.push(["warn", `This balancer is ${announce.state}: an operator has withdrawn it, or it is about to end. weir lb announce resume`]);
    for (const n of announce.bgp?.neighbours || []) {
      if (n.problem) found.push(["bad", `BGP neighbour ${n.address}: ${n.problem}`]);
      else if (n.state !== "established") found.push(["warn", `BGP neighbour ${n.address} is ${n.state}: it was sent nothing.`]);
    }
    if (announce.bgp?.filtered?.length) found.push(["bad", "A policy drops prefixes that should be announced: " + announce.bgp.filtered.join(", ")]);
    for (const r of announce.vrrp || []) {
      if (r.problem || r.state === "down") found.push([r.problem ? "bad" : "warn", `${router(r)} is ${r.state}: ${r.problem || r.reason}`.replace("virtual", "Virtual")]);
    }
    if (announce.state === "serving") {
      for (const p of announce.prefixes || []) if (p.state !== "announced") found.push(["bad", `Prefix ${p.prefix} is ${p.state}: ${p.reason || "no reason is known"}`]);
    }
    const more = found.length - shownFindings;
    return more > 0 ? [...found.slice(0, shownFindings), ["warn", more + " more findings about announcements, see the tables"]] : found;
  }
}
