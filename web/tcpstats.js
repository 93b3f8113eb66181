// The page of `weir tcp stats`: it draws each state that api/events sends, and asks api/history for its plots.

import { $, element, perSecond, seconds, setText, showCards, whole } from "./dom.js";
import { Plot } from "./plot.js";
import { SortedTable, drawMatrix } from "./table.js";

const bytes = (v) => (v >= 1 << 30 ? (v / (1 << 30)).toFixed(1) + " GiB" : (v / (1 << 20)).toFixed(1) + " MiB");
const ms = (v) => (v ? (v < 10 ? v.toFixed(2) : v.toFixed(1)) + " ms" : "–");
const percent = (v) => v.toFixed(0) + " %";

let picked = "all", span = "5m", state = null, lastState = 0, lastHistory = 0, asking = false;

function column(title, value, text, more) {
  return { title, value, text: (r) => text(value(r)), numeric: true, ...more };
}

const unlessOriginal = (text) => (r) => (r.original ? "–" : text(r));
const condition = { title: "state", value: (r) => r.state, text: (r) => (r.state === "live" ? (r.restarts ? "live, restarted " + r.restarts + "×" : "live") : r.state) };
const identity = (title) => ({ title, value: (r) => r.name, text: (r) => r.name });
const where = { title: "host", value: (r) => r.host, text: (r) => [r.host || r.address, r.zone].filter(Boolean).join(", ") + (r.original ? " (original)" : "") };
const machine = [
  { ...column("CPU", (r) => r.cpu_percent, percent, { hint: "of one core" }), text: unlessOriginal((r) => percent(r.cpu_percent)) },
  { ...column("memory", (r) => r.rss_bytes, bytes), text: unlessOriginal((r) => bytes(r.rss_bytes)) },
  column("report", (r) => r.age_s, (v) => seconds(Math.round(v)) + " ago", { hint: "age of the last report" }),
];

const serverTable = new SortedTable($("servers"), "", [
  identity("server"), where, condition,
  column("connections", (r) => r.connections.established, whole, { bar: (r) => (r.state === "live" ? r.connections.established / Math.max(1, state.server_end.established) * 100 : 0) }),
  { ...column("clients", (r) => r.peers, whole), text: unlessOriginal((r) => whole(r.peers)) },
  { ...column("opened", (r) => r.rates.opened, perSecond), text: unlessOriginal((r) => perSecond(r.rates.opened)) },
  { ...column("closed", (r) => r.rates.closed, perSecond), text: unlessOriginal((r) => perSecond(r.rates.closed)) },
  column("evicted", (r) => r.totals.evicted, whole, { hint: "silent for longer than the client announced" }),
  column("refused", (r) => r.totals.refused, whole, { hint: "bytes that are no protocol" }),
  column("missed", (r) => r.heartbeats_missed, whole, { hint: "heartbeats that did not come in time" }),
  ...machine,
], [0, false], (row) => pick(row.key));

const clientTable = new SortedTable($("clients"), "", [
  identity("client"), where, condition,
  column("connected", (r) => r.connections.established, whole),
  column("target", (r) => r.connections.target || 0, whole),
  column("connecting", (r) => r.connections.connecting, whole),
  column("opened", (r) => r.rates.opened, perSecond),
  column("lost", (r) => r.totals.lost, whole),
  column("reconnected", (r) => r.totals.reconnected, whole),
  column("failed", (r) => r.totals.failed, whole),
  column("round trip", (r) => r.rtt_p50_ms, ms, { hint: "of heartbeats, median" }),
  column("p99", (r) => r.rtt_p99_ms, ms, { hint: "of heartbeats, 99th percentile" }),
  column("missed", (r) => r.heartbeats_missed, whole, { hint: "heartbeats without an echo in time" }),
  ...machine,
], [0, false], (row) => pick(row.key));

const failureTable = new SortedTable($("failures"), "Of all clients that are listed", [
  { title: "kind", value: (r) => r.kind, text: (r) => r.kind.replaceAll("_", " ") },
  column("count", (r) => r.count, whole),
  { title: "what it means, what to do", value: (r) => r.remedy || "", text: (r) => r.remedy || "", wide: true },
], [1, true], null);

const connectionLines = [{ name: "clients count", style: "a" }, { name: "servers count", style: "b" }, { name: "expected", style: "e" }];
const connectionsPlot = new Plot($("plot-connections"), "Connections", connectionLines);
const eventsPlot = new Plot($("plot-events"), "Events per second", [
  { name: "opened", style: "a" }, { name: "lost", style: "d" }, { name: "reconnected", style: "c" }, { name: "failed", style: "b" }]);

function cards(st) {
  const t = st.totals, c = st.client_end, s = st.server_end;
  const of = (end) => end.live + " live" + (end.silent ? ", " + end.silent + " silent" : "") + (end.ended ? ", " + end.ended + " ended" : "");
  const list = [
    ["clients count", whole(c.established), of(c)],
    ["servers count", whole(s.established), of(s)],
    ["difference of the ends", st.difference === undefined ? "–" : whole(st.difference), "", st.difference !== undefined && Math.abs(st.difference) > c.established / 100],
    ["target", c.target ? whole(c.target) : "–", c.connecting ? whole(c.connecting) + " connecting" : ""],
    ["opened", whole(t.opened), perSecond(st.rates.opened)],
    ["lost", whole(t.lost), perSecond(st.rates.lost), t.lost > 0],
    ["reconnected", whole(t.reconnected), perSecond(st.rates.reconnected)],
    ["failed attempts", whole(t.failed), perSecond(st.rates.failed), t.failed > 0],
    ["evicted by servers", whole(t.evicted), "", t.evicted > 0],
  ];
  showCards($("cards"), list);
}

// finding says where a ramp stands still, and which limits are reached.
function finding(st) {
  const texts = [];
  for (const c of st.clients) {
    if (c.state !== "live") continue;
    if (c.void) texts.push(`${c.name}: the result is void: ${c.void}`);
    if (c.plateau) texts.push(`${c.name} stands at ${whole(c.plateau.connections)} (${c.plateau.ceiling}): ${c.plateau.because}${c.plateau.remedy ? " " + c.plateau.remedy : ""}`);
  }
  const limits = new Set([...st.servers, ...st.clients].flatMap((r) => (r.state === "live" && r.limits_hit) || []));
  if (limits.size) texts.push("Limits reached: " + [...limits].slice(0, 8).join("; "));
  setText($("finding"), texts.slice(0, 4).join(" · "));
  $("finding").hidden = texts.length === 0;
}

function choices(st) {
  const wanted = [["all", "all"], ...[...st.servers].map((r) => [r.key, "server " + r.name]), ...[...st.clients].map((r) => [r.key, "client " + r.name])];
  if (!wanted.some(([key]) => key === picked)) picked = "all";
  const select = $("of"), shape = JSON.stringify(wanted);
  if (select.dataset.shape !== shape) {
    select.dataset.shape = shape;
    select.replaceChildren(...wanted.map(([value, text]) => element("option", { value }, text)));
  }
  select.value = picked;
}

// The number is shown at once, and spoken at most once in ten seconds, and only when it has changed.
let spokenAt = -Infinity;
function speak(text, now) {
  if (now - spokenAt < 10000 || $("spoken").textContent === text) return;
  spokenAt = now === Infinity ? performance.now() : now;
  $("spoken").textContent = text;
}

// What the service refuses or gives up, for the last line.
const dropped = {
  reporters: "reports of more reporters", forgotten: "reporters forgotten early", bad_reports: "impossible reports", too_large: "too large reports", strangers: "requests without the token",
  busy: "reports at a busy time", watchers: "readers more than there is room for", slow_watchers: "readers that were too slow",
};

let words = [];

// matrixWords are those of the filter, unless they leave no client: then they were meant for servers.
function matrixWords(st) {
  return st.matrix.rows.some((r) => words.every((w) => r.client.toLowerCase().includes(w))) ? words : [];
}

function tellFilter() {
  const of = (table, name) => `${table.shown} of ${table.rows.size} ${name}`;
  setText($("filtered"), words.length ? of(serverTable, "servers") + ", " + of(clientTable, "clients") : "");
}

function show(st) {
  state = st;
  lastState = performance.now();
  setText($("connected"), whole(st.connected));
  setText($("expected"), st.expected ? " of " + whole(st.expected) + " expected" : "");
  document.title = whole(st.connected) + " connected – weir tcp stats";
  speak(`${whole(st.connected)} connected, ${st.server_end.live} servers, ${st.client_end.live} clients, ${whole(st.totals.lost)} lost`, lastState);
  const empty = st.reporters === 0;
  $("empty").hidden = !empty;
  $("full").hidden = empty;
  const lost = Object.entries(st.dropped).filter(([, n]) => n > 0).map(([what, n]) => whole(n) + " " + (dropped[what] || what));
  setText($("dropped"), `${st.reporters} of at most ${st.max_reporters} reporters, ${whole(st.reports)} reports` + (lost.length ? "; refused or given up: " + lost.join(", ") : ""));
  if (empty) return;
  choices(st);
  cards(st);
  finding(st);
  setText(serverTable.caption, `${st.server_end.live} live, ${whole(st.server_end.established)} connections`);
  setText(clientTable.caption, `${st.client_end.live} live, ${whole(st.client_end.established)} connections`);
  serverTable.update(st.servers, picked);
  clientTable.update(st.clients, picked);
  drawMatrix($("matrix"), $("matrix-note"), st.matrix, matrixWords(st));
  tellFilter();
  failureTable.update(st.failures.map((f) => ({ key: f.kind, ...f })));
  $("failures").hidden = st.failures.length === 0;
  $("no-failures").hidden = st.failures.length > 0;
  plots(false);
}

const spans = { "5m": { seconds: 300, each: 900 }, "1h": { seconds: 3600, each: 5000 }, "24h": { seconds: 86400, each: 30000 } };

// plots requests what the plots show; each span has its pace, and a request of the reader does not wait for it.
async function plots(atOnce) {
  const now = performance.now(), id = picked, of = span;
  if (!atOnce && (asking || now - lastHistory < spans[of].each)) return;
  asking = true;
  lastHistory = now;
  try {
    const answer = await fetch(`api/history?id=${encodeURIComponent(id)}&span=${of}`);
    if (!answer.ok) return;
    const h = await answer.json();
    if (id !== picked || of !== span) return; // a newer request has replaced this one
    const slots = spans[of].seconds / h.step_s;
    const expected = id === "all" && state.expected ? h.clients.map(() => state.expected) : h.clients.map(() => null);
    const wanted = expected.some((v) => v !== null) ? 3 : 2;
    if (connectionsPlot.series.length !== wanted) connectionsPlot.lines(connectionLines.slice(0, wanted));
    connectionsPlot.set([h.clients, h.servers, expected].slice(0, wanted), h.step_s, slots);
    eventsPlot.set([h.opened, h.lost, h.reconnected, h.failed], h.step_s, slots);
  } catch { /* the badge shows it */ } finally {
    asking = false;
  }
}

function pick(key) {
  picked = picked === key ? "all" : key;
  show(state);
  plots(true);
}

function badge(text, name) {
  if (name === "bad" && $("link").className.includes("ok")) speak("The connection to the service is lost, the figures stand still.", Infinity);
  if (name === "ok" && $("link").className.includes("bad")) speak("The figures are live again.", Infinity);
  setText($("link"), text);
  $("link").className = "badge " + name;
}

function listen() {
  const events = new EventSource("api/events");
  events.addEventListener("state", (e) => {
    badge("live", "ok");
    show(JSON.parse(e.data));
  });
  events.onerror = () => {
    badge("reconnecting …", "bad");
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000); // refused: a browser does not try again by itself
  };
}

$("filter").addEventListener("input", (e) => {
  words = e.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  serverTable.filter(words);
  clientTable.filter(words);
  if (state) drawMatrix($("matrix"), $("matrix-note"), state.matrix, matrixWords(state));
  tellFilter();
});
$("of").addEventListener("change", (e) => {
  picked = e.target.value;
  show(state);
  plots(true);
});
for (const button of $("spans").children) {
  button.addEventListener("click", () => {
    span = button.dataset.span;
    for (const b of $("spans").children) b.setAttribute("aria-pressed", String(b === button));
    plots(true);
  });
}
const here = location.host || "127.0.0.1:9190";
$("commands").textContent = `weir tcp server --listen :10000 --stats ${here}\nweir tcp client --to 127.0.0.1:10000 --connections 10000 --stats ${here}`;
$("original").textContent = new URL("api/ServerStatistics", location.href).href;
setInterval(() => {
  const quiet = performance.now() - lastState;
  if (lastState && quiet > 5000) badge(`no word for ${Math.round(quiet / 1000)} s`, "bad");
}, 1000);
listen();
