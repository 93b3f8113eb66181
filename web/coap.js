// What a CoAP server shows, alone or as a node of a cluster.
import { bytesPerSecond, column, counted, perSecond, seconds, textColumn, unknown, whole } from "./dom.js";
import { SortedTable } from "./table.js";

const stateOf = { self: "", up: "", unknown: "warn", searched: "warn", down: "bad" };
const engine = (name) => "weir_coap_engine_" + name;

export class Server {
  constructor(page) {
    this.listeners = new SortedTable(page.region("listeners", "Listeners"), "", [
      textColumn("listener", (r) => r.uri), textColumn("node", (r) => r.id), column("sessions", (r) => r.sessions, whole, { hint: "DTLS sessions and plain peers, or connections" }),
      column("handshakes", (r) => r.handshakes, perSecond), column("half open", (r) => r.halfOpen, whole), column("requests", (r) => r.requests, perSecond),
      column("received", (r) => r.received, bytesPerSecond), column("sent", (r) => r.sent, bytesPerSecond), column("observations", (r) => r.observers, whole),
      column("pending", (r) => r.pending, whole, { hint: "messages that await an acknowledgement" }), column("refused records", (r) => r.refused, perSecond, { hint: "wrong MAC, replayed or malformed" }),
    ], [0, false], null);
    this.place = page.section("nodes", "Nodes of the cluster");
    this.nodes = new SortedTable(page.scroll(this.place, "Nodes of the cluster"), "", [
      textColumn("node", (r) => r.name), textColumn("seen by", (r) => r.by), textColumn("internal address", (r) => r.management),
      textColumn("state", (r) => r.state, { state: (r) => stateOf[r.state] }), textColumn("link", (r) => (r.state === "self" ? "" : r.secured ? "DTLS" : "not secured")),
      column("newest message", (r) => (r.silent_s > 0 ? r.silent_s : null), seconds, { hint: "how long ago" }),
    ], [0, false], null);
    this.sharesPlace = page.section("sessions", "Sessions of the nodes");
    this.shares = new SortedTable(page.scroll(this.sharesPlace, "Sessions of the nodes"), "", [
      textColumn("node", (r) => r.name), textColumn("state", (r) => r.state, { state: (r) => (r.state === "serves" ? "" : "warn") }), column("sessions", (r) => r.sessions, whole),
      column("on their way", (r) => r.transit, whole), column("moved out", (r) => r.out, whole), column("moved in", (r) => r.in, whole), column("lost", (r) => r.lost, whole, { hint: "dropped while they moved" }),
      textColumn("copies at", (r) => r.buddy), column("without a copy", (r) => r.behind, whole, { hint: "sessions of which the other node has no copy yet" }),
      column("copies of others", (r) => r.copies, whole), column("taken over", (r) => r.takenOver, whole),
    ], [0, false], null);
    this.shardsPlace = page.section("shards", "Shards that have moved");
    this.shards = new SortedTable(page.scroll(this.shardsPlace, "Shards that have moved", "tall"), "", [
      textColumn("shard", (r) => String(r.shard), { hint: "node id in the connection ids" }), textColumn("seen by", (r) => r.by), textColumn("owner", (r) => String(r.owner), { state: (r) => (r.down ? "bad" : "") }),
      column("version", (r) => r.version, whole),
    ], [0, false], null);
    this.paths = [];
  }

  update({ status, metrics }) {
    const rate = (names, where) => names.reduce((n, name) => { const r = metrics.rate(name, where); return r === null ? n : (n || 0) + r; }, null);
    this.listeners.update(status.listeners.map((l) => {
      const where = { listener: l.uri };
      return {
        key: l.uri, uri: l.uri, id: l.node_id === undefined ? "" : String(l.node_id), sessions: l.engine.sessions + (l.streams?.connections || 0), halfOpen: l.engine.half_open + (l.streams?.handshakes || 0),
        observers: l.resources.observers, pending: l.pending, handshakes: rate([engine("handshakes_total")], where), requests: rate(["weir_coap_exchange_requests_total", "weir_coap_streams_messages_total"], where),
        received: rate([engine("received_bytes_total"), "weir_coap_streams_received_bytes_total"], where), sent: rate([engine("sent_bytes_total"), "weir_coap_streams_sent_bytes_total"], where),
        refused: rate([engine("bad_macs_total"), engine("replays_total"), engine("malformed_total")], where),
      };
    }));
    const nodes = status.listeners.flatMap((l) => (l.nodes || []).map((n) => ({ ...n, key: l.uri + " " + n.management, name: n.id === undefined ? "?" : String(n.id), by: String(l.node_id), off: n.state === "down" })));
    this.place.hidden = nodes.length === 0;
    this.nodes.update(nodes);
    const shares = status.listeners.filter((l) => l.moves || l.replication).map(sharesOf);
    this.sharesPlace.hidden = shares.length === 0;
    this.shares.update(shares);
    this.rows = status.listeners.flatMap((l) => (l.moves?.owners || []).map((o) => ({
      ...o, key: l.uri + " " + o.shard, by: String(l.node_id), down: (l.nodes || []).some((n) => n.id === o.owner && n.state === "down"),
    })));
    this.shardsPlace.hidden = this.rows.length === 0;
    this.shards.update(this.rows);
  }

  cards({ status, metrics }) {
    const sum = (of) => status.listeners.reduce((n, l) => n + of(l), 0);
    const [median, high] = [0.5, 0.99].map((q) => metrics.quantile(engine("request_duration_seconds"), q));
    return [
      ["sessions", whole(sum((l) => l.engine.sessions)), whole(sum((l) => l.engine.half_open)) + " handshakes under way"],
      ["connections", whole(sum((l) => l.streams?.connections || 0)), "TCP and TLS"],
      ["requests", perSecond(metrics.rate("weir_coap_exchange_requests_total")), ""],
      ["duration of requests", median === null ? unknown : seconds(median), high === null ? "median" : "median; 99 %: " + seconds(high)],
      ["handshakes", perSecond(metrics.rate(engine("handshakes_total"))), whole(sum((l) => l.engine.handshakes_failed)) + " failed so far"],
      ["forwarded to nodes", perSecond(metrics.rate("weir_coap_cluster_forwarded_total")), ""],
      ["observations", whole(sum((l) => l.resources.observers)), ""],
    ];
  }

  findings({ status }) {
    const found = [];
    if (status.credentials?.error) found.push(["bad", "Keys and certificates were not taken over: " + status.credentials.error]);
    if (status.discovery?.error) found.push(["warn", "The API server does not answer, the latest Pods count: " + status.discovery.error]);
    for (const r of this.rows) if (r.down) found.push(["bad", `Shard ${r.shard} is at node ${r.owner}, which is down, as node ${r.by} sees it: its sessions are not served.`]);
    for (const l of status.listeners) {
      if (l.moves?.cause) found.push(["bad", `Node ${l.node_id}: sessions could not be moved: ${l.moves.cause}`]);
      if (l.replication?.store_error) found.push(["warn", `Node ${l.node_id}: the store in which nodes agree (${l.replication.store}) does not answer: ${l.replication.store_error}`]);
      if (l.moves?.draining) found.push(["warn", `Node ${l.node_id} drains: its sessions move to other nodes.`]);
      if (l.replication?.alone) found.push(["warn", `Node ${l.node_id}: no other node has copies of its sessions, so a crash loses them.`]);
      for (const n of l.nodes || []) if (n.state === "down") found.push(["bad", `Node ${n.id ?? n.management} is down, as node ${l.node_id} sees it.`]);
    }
    if (status.keep?.supervisor === "gone") found.push(["bad", "The supervisor has ended: no program restarts the server."]);
    return found;
  }

  headline({ status }) {
    return `${counted(status.listeners.reduce((n, l) => n + l.engine.sessions, 0), "session")}, ${counted(status.listeners.length, "listener")}`;
  }
}

function sharesOf(l) {
  const m = l.moves || {}, c = l.replication || {};
  return {
    key: l.uri, name: String(l.node_id), state: m.drained ? "drained" : m.draining ? "drains" : m.to !== undefined ? "moves to " + m.to : "serves", sessions: m.sessions ?? l.engine.sessions,
    transit: m.transit, out: m.moved_out, in: m.moved_in, lost: m.moved_lost, buddy: l.replication ? (c.buddy === undefined ? "no node" : "node " + c.buddy) : "", behind: c.behind, copies: c.copies,
    takenOver: c.taken_over, off: Boolean(m.drained),
  };
}
