// What a TURN gateway shows. Rates of allocations are differences of two answers of /users.
import { bytesPerSecond, column, counted, element, perSecond, seconds, setText, textColumn, whole } from "./dom.js";
import { SortedTable } from "./table.js";

const rowsShown = 100;
const few = (list) => list.slice(0, 2).join(" ") + (list.length > 2 ? " +" + (list.length - 2) : "");
const counts = [
  column("allocations", (r) => r.allocations, whole), column("permissions", (r) => r.permissions, whole), column("channels", (r) => r.channels, whole),
  column("suspended", (r) => r.suspended, whole, { hint: "permissions and channels whose routes are missing" }),
];
const rates = [
  column("up", (r) => r.up, perSecond, { hint: "packets from clients to peers" }), column("down", (r) => r.down, perSecond, { hint: "packets from peers to clients" }),
  column("bytes up", (r) => r.bytesUp, bytesPerSecond), column("bytes down", (r) => r.bytesDown, bytesPerSecond),
];

export class Gateway {
  constructor(page) {
    this.listeners = new SortedTable(page.region("listeners", "Listeners"), "", [
      textColumn("listener", (r) => r.name), textColumn("protocol", (r) => r.protocol), textColumn("address", (r) => r.address), ...counts, column("opened", (r) => r.opened, whole, { hint: "allocations since the start" }),
      column("connections", (r) => r.connections, whole, { hint: "of clients over TCP, TLS and DTLS" }), ...rates,
      column("overflowed", (r) => r.overflowed, whole, { hint: "datagrams that found the kernel's buffer full" }),
    ], [0, false], null);
    this.clusters = new SortedTable(page.region("clusters", "Clusters of peers"), "", [textColumn("cluster", (r) => r.name), ...counts, ...rates], [0, false], null);
    const place = page.section("users", "Allocations");
    this.note = element("p", { class: "dim", id: "users-count" });
    place.append(this.note);
    this.users = new SortedTable(page.scroll(place, "Allocations", "tall"), "", [
      textColumn("user", (u) => u.user), textColumn("client", (u) => u.client), textColumn("listener", (u) => u.listener + " (" + u.transport + ")"),
      textColumn("relay address", (u) => few(u.relay || []) + (u.relay_public ? " as " + few(u.relay_public) : "")), textColumn("peers", (u) => few(u.peers || [])),
      { ...column("channels", (u) => u.channels, whole), text: (u) => u.channels + (u.offloaded ? " (" + u.offloaded + " in kernel)" : "") },
      column("expires in", (u) => u.left, (v) => seconds(Math.round(v))),
      column("up", (u) => u.rateUp, bytesPerSecond), column("down", (u) => u.rateDown, bytesPerSecond),
    ], [8, true], null);
    this.paths = ["/users"];
  }

  query(path) {
    return path === "/users" ? "?sort=bytes&limit=" + rowsShown : "";
  }

  update({ status, metrics, answers }) {
    const row = (kind, label) => (x) => {
      const where = { [label]: x.name }, of = (what, direction) => metrics.rate(`weir_turn_${kind}_${what}_total`, { ...where, direction });
      return { ...x, key: x.name, up: of("packets", "up"), down: of("packets", "down"), bytesUp: of("bytes", "up"), bytesDown: of("bytes", "down") };
    };
    this.listeners.update((status.listeners || []).map(row("listener", "listener")));
    this.clusters.update((status.clusters || []).map(row("cluster", "cluster")));
    const list = answers["/users"];
    if (!list || list.error) return;
    const seconds = this.before ? (list.at - this.before.at) / 1e9 : 0;
    const rate = (now, last) => (last === undefined || seconds <= 0 || now < last ? null : (now - last) / seconds);
    this.users.update(list.users.map((u) => {
      const last = this.before?.bytes.get(u.id);
      return { ...u, key: String(u.id), left: Math.max(0, (u.expires - list.at) / 1e9), rateUp: rate(u.up.bytes, last?.up), rateDown: rate(u.down.bytes, last?.down) };
    }));
    setText(this.note, whole(list.total) + " now" + (list.total > list.users.length ? ", the busiest " + list.users.length + " shown" : ""));
    this.before = { at: list.at, bytes: new Map(list.users.map((u) => [u.id, { up: u.up.bytes, down: u.down.bytes }])) };
  }

  cards({ status, metrics }) {
    const t = status.totals, rate = (what, direction) => metrics.rate(`weir_turn_listener_${what}_total`, { direction });
    return [
      ["allocations", whole(t.allocations), whole(t.opened) + " since the start"],
      ["permissions", whole(t.permissions), t.suspended ? whole(t.suspended) + " suspended" : "", t.suspended > 0],
      ["channels", whole(t.channels), status.offload || "relayed in user space"],
      ["to peers", bytesPerSecond(rate("bytes", "up")), perSecond(rate("packets", "up"))],
      ["to clients", bytesPerSecond(rate("bytes", "down")), perSecond(rate("packets", "down"))],
      ["workers", String(status.workers), ""],
    ];
  }

  findings({ status }) {
    const found = [];
    if (status.draining) found.push(["warn", "The gateway drains: it accepts no new allocations."]);
    if (status.config?.error) found.push(["bad", "The last configuration was refused, the one before it is in force: " + status.config.error]);
    for (const n of status.names || []) if (n.error) found.push(["warn", `The name ${n.name} cannot be looked up: ${n.error}`]);
    if (status.keep?.supervisor === "gone") found.push(["bad", "The supervisor has ended: no program restarts the gateway."]);
    if (status.keep?.state_unusable) found.push(["bad", "Allocations are not kept over a restart: " + status.keep.state_unusable]);
    return found;
  }

  headline({ status }) {
    return `${counted(status.totals.allocations, "allocation")}, ${counted((status.listeners || []).length, "listener")}`;
  }
}
