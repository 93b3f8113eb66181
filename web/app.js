// The page of a running part: it finds out which one it is and what it serves, and shows that every two seconds. See web.go.
import { $, counted, element, setText, showCards } from "./dom.js";
import { Balancer } from "./balancer.js";
import { Server } from "./coap.js";
import { Drops, dropCard } from "./drops.js";
import { Events } from "./events.js";
import { Explorer } from "./explorer.js";
import { LastHour } from "./history.js";
import { Metrics } from "./metrics.js";
import { Credentials, Operator, TunnelEnd } from "./small.js";
import { Gateway } from "./turn.js";

const period = 2000, historyPeriod = 10000;
const parts = {
  lb: [Balancer, "load balancer"], nat: [Balancer, "UDP NAT"], coap: [Server, "CoAP server"], turn: [Gateway, "TURN gateway"],
  operator: [Operator, "operator"], "turn-auth": [Credentials, "TURN credentials"], decap: [TunnelEnd, "tunnel endpoint"],
};

let timer = 0, wake = null;

// The page that parts build their sections in. A section has its place in the navigation while it is shown.
const page = {
  section(id, title) {
    const heading = element("h2", { id: id + "-h" }, title);
    const section = element("section", { id, "aria-labelledby": id + "-h", tabindex: "-1" }, heading);
    $("main").append(section);
    const item = element("li", {}, element("a", { href: "#" + id }, title));
    $("sections").append(item);
    new MutationObserver(() => (item.hidden = section.hidden)).observe(section, { attributes: true, attributeFilter: ["hidden"] });
    return section;
  },
  scroll(section, label, height = "") {
    const place = element("div", { class: "scroll " + height, role: "region", "aria-label": label, tabindex: "0" });
    section.append(place);
    return place;
  },
  region(id, title) {
    return this.scroll(this.section(id, title), title);
  },
  // now polls at once: the reader has changed a query.
  now() {
    clearTimeout(timer);
    wake?.();
  },
};

// What changes is spoken at most once in ten seconds.
let spokenAt = -Infinity, said = "";
function speak(text) {
  if (text === said || performance.now() - spokenAt < 10000) return;
  spokenAt = performance.now();
  said = text;
  $("spoken").textContent = text;
}

function badge(id, text, name) {
  setText($(id), text);
  $(id).className = "badge " + name;
}

// get requests JSON. refusals: an error of the request is an answer, too.
async function get(path, refusals) {
  const answer = await fetch(path.slice(1));
  if (!answer.ok && !(refusals && answer.status === 400)) throw new Error(path + ": " + answer.status);
  return answer.json();
}

class Dashboard {
  constructor(name, paths) {
    this.name = name;
    this.served = new Set(paths);
    this.metrics = new Metrics();
    this.lastHistory = -Infinity;
    const [Part, title] = parts[name] || [null, name || "weir"];
    setText($("title"), "weir " + (title === "weir" ? "" : title));
    document.title = $("title").textContent.trim();
    if (this.has("/history")) this.history = new LastHour(this.historyPlace());
    if (Part && this.has("/status")) this.part = new Part(page);
    this.drops = new Drops(page.section("drops", "Drops and refusals"));
    if (this.has("/events")) this.events = new Events(page.section("events", "Events"));
    const all = page.section("metrics", "All metrics");
    const details = element("details", {}, element("summary", {}, "Every metric of this process, with its last three minutes"));
    all.append(details);
    this.explorer = new Explorer(details);
    details.open = !this.part;
    details.addEventListener("toggle", () => details.open && this.explorer.show());
    this.details = details;
  }

  historyPlace() {
    const section = page.section("history", "Last hour"), place = element("div");
    this.waiting = element("p", { class: "dim" }, "The first rates come after twenty seconds.");
    section.append(this.waiting, place);
    return place;
  }

  has(path) {
    return this.served.has(path);
  }

  async poll() {
    const ready = await fetch("readyz"), text = (await ready.text()).trim();
    badge("ready", text || "ready", ready.ok ? "ok" : "bad");
    const answer = await fetch("metrics");
    if (!answer.ok) throw new Error(String(answer.status));
    this.metrics.update(await answer.text(), performance.now());
    const data = { metrics: this.metrics, answers: {} };
    if (this.part) {
      data.status = await get("/status");
      for (const path of this.part.paths) if (this.has(path)) data.answers[path] = await get(path + this.part.query(path), true);
    }
    if (this.events) this.events.update(await get("/events?after=" + this.events.newest));
    if (this.history && performance.now() - this.lastHistory >= historyPeriod) {
      this.lastHistory = performance.now();
      const history = await get("/history");
      this.history.update(history);
      this.waiting.hidden = history.plots.some((p) => p.rate && p.lines.some((l) => l.values.some((v) => v !== null)));
    }
    this.show(data, ready.ok ? "" : text);
    badge("link", "live", "ok");
  }

  show(data, problem) {
    this.drops.update(this.metrics);
    this.explorer.update(this.metrics, this.details.open);
    const cards = [], findings = problem ? [["bad", "The process is " + problem]] : [];
    if (this.part) {
      this.part.update(data);
      cards.push(...this.part.cards(data));
      findings.push(...this.part.findings(data));
      setText($("headline"), this.part.headline(data));
      speak(this.part.headline(data) + (findings.length ? ", " + counted(findings.length, "finding") : ""));
    }
    cards.push(dropCard(this.drops));
    showCards($("cards"), cards);
    showFindings(findings);
  }
}

function showFindings(findings) {
  const text = JSON.stringify(findings), place = $("findings");
  if (place.dataset.shown === text) return;
  place.dataset.shown = text;
  place.hidden = findings.length === 0;
  place.replaceChildren(...findings.map(([level, words]) => element("li", { class: level }, words)));
}

async function routes() {
  const answer = await fetch("routes");
  if (answer.status === 401 || answer.status === 403) throw new Error(String(answer.status));
  const list = answer.ok ? await answer.json() : [];
  return [answer.headers.get("Weir-Part") || "", list.map((r) => r.pattern.split(" ")[1])];
}

async function run() {
  let dashboard = null, started = "";
  for (;;) {
    const began = performance.now();
    try {
      const [name, paths] = dashboard ? [dashboard.name, []] : await routes();
      if (!dashboard) dashboard = new Dashboard(name, paths);
      await dashboard.poll();
    } catch (error) {
      badge("link", started ? "does not answer" : "connecting …", "bad");
      if (!(error instanceof TypeError)) console.error(error);
    }
    started = "yes";
    // A process that takes long to answer is asked more rarely; a page that is not seen does not ask.
    const pause = Math.max(period, 4 * (performance.now() - began));
    await new Promise((resolve) => {
      wake = resolve;
      timer = setTimeout(resolve, Math.min(pause, 15000));
    });
    if (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
  }
}

run();
