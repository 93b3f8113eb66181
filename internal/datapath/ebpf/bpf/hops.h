/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * hops.h: the ways to clients, remembered by their flows (route.h).
 */
#pragma once

#include "conntrack.h"
#include "route.h"

/* Looks up the way to the packet's client; returns its place, or why there is none. */
__noinline int client_route(ctx_t *ctx, struct pkt *p)
{
	const struct control *control = control_of();
	struct flow_entry *entry;
	__u32 place, tag;
	struct way *way;
	__u64 print;
	int problem;

	if (!p || !control)
		return ROUTE_NONE;
	way = way_at(&flows, p->number);
	print = way ? *(volatile __u64 *)&way->print : PRINT_BUSY;
	tag = hop_tag(p, control); /* first: routes may change while they are looked up */
	problem = route_of(ctx, p);
	if (problem)
		return problem;
	place = hop_enter(p);
	entry = entry_at(p->number);
	if (entry && place < CLIENT_HOPS && way && *(volatile __u64 *)&way->print == print)
		entry->hop = tag | place; /* else it is another flow's by now */
	return place;
}

/* The way to a flow's client. */
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
