// The allocations of a TURN gateway, busiest first, from /users; other parts do not serve it
// and keep the table hidden. See web.go.
"use strict";

const rowsShown = 100;
let before = null; // the answer of the time before: {at, bytes by id}

function rate(bytes, last, seconds) {
  return last === undefined || seconds <= 0 || bytes < last ? "…" : number((bytes - last) * 8 / seconds).replace(/\d$/, "$& ") + "bit/s";
}

function few(list) {
  return list.slice(0, 2).join(" ") + (list.length > 2 ? " +" + (list.length - 2) : "");
}

function userRow(u, list) {
  const last = before?.bytes.get(u.id), seconds = before ? (list.at - before.at) / 1e9 : 0;
  const r = element("tr");
  const cells = [u.user, u.client, u.listener + " (" + u.transport + ")", few(u.relay || []) + (u.relay_public ? " as " + few(u.relay_public) : ""), few(u.peers || [])];
  for (const text of cells) r.append(element("td", "", text));
  const left = Math.max(0, Math.round((u.expires - list.at) / 1e9));
  const numbers = [u.channels + (u.offloaded ? " (" + u.offloaded + " in kernel)" : ""), left + " s",
    rate(u.up.bytes, last?.up, seconds), rate(u.down.bytes, last?.down, seconds)];
  for (const text of numbers) r.append(element("td", "n", text));
  return r;
}

async function users() {
  try {
    const answer = await fetch("users?sort=bytes&limit=" + rowsShown);
    if (answer.status === 404) return; // not a gateway: never ask again
    if (answer.ok) {
      const list = await answer.json();
      $("users").hidden = false;
      const more = list.total > list.users.length ? ", the busiest " + list.users.length + " shown" : "";
      $("users-count").textContent = list.total + " now" + more;
      $("users-rows").replaceChildren(...list.users.map((u) => userRow(u, list)));
      before = { at: list.at, bytes: new Map(list.users.map((u) => [u.id, { up: u.up.bytes, down: u.down.bytes }])) };
    }
  } catch { /* the badge says that no program answers */ }
  setTimeout(users, period);
}

users();
