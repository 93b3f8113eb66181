/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * hops.h: the next hops towards clients, remembered by their flows (route.h).
 */
#pragma once

#include "conntrack.h"
#include "route.h"

/* Looks up the next hop towards the client of the packet; returns its index, or why there is none. */
__noinline int client_route(ctx_t *ctx, struct pkt *p)
{
	const struct control *control = control_of();
	struct flow_entry *entry;
	__u32 index, tag;
	struct table_slot *slot;
	__u64 fingerprint;
	int problem;

	if (!p || !control)
		return ROUTE_NONE;
	slot = table_at(&flows, p->number);
	fingerprint = slot ? *(volatile __u64 *)&slot->fingerprint : FINGERPRINT_BUSY;
	tag = hop_tag(p, control); /* first: routes may change while they are looked up */
	problem = route_of(ctx, p);
	if (problem)
		return problem;
	index = hop_enter(p);
	entry = entry_at(p->number);
	if (entry && index < CLIENT_HOPS && slot && *(volatile __u64 *)&slot->fingerprint == fingerprint)
		entry->hop = tag | index; /* else it is another flow's by now */
	return index;
}

/* The next hop towards the client of a flow. */
static __always_inline const struct out *client_out(ctx_t *ctx, struct pkt *p, int *found)
{
	struct flow_entry *entry = entry_at(p->number);
	const struct control *control = control_of();
	struct client_hop *h;
	__u32 at;

	if (!entry || !control)
		return NULL;
	at = entry->hop & (CLIENT_HOPS - 1);
	if (entry->hop - at != hop_tag(p, control)) {
		*found = client_route(ctx, p);
		if (*found < 0)
			return NULL;
		at = *found;
	}
	h = bpf_map_lookup_elem(&client_hops, &at);
	return h ? &h->out : NULL;
}
