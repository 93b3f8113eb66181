/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * inbound.h: tunnels that end at this balancer (decap in a configuration). They
 * are taken off before anything else is looked at, so that the packet inside is
 * steered, traced and counted as if it had come without.
 */
#pragma once

#include "maps.h"
#include "params.h"
#include "tunnel.h"

/* Sets in the map clients, beyond those of services. The lowest bit is the generation's. */
enum { TUNNEL_TO = 1 << 16, TUNNEL_FROM = TUNNEL_TO + 2 };

static __always_inline bool tunnel_within(const struct opening *o, __u32 set, const __u8 *addr)
{
	struct client_prefix key = {.bits = 32 + 128};

	key.set = (set + o->generation) << 1 | (o->version == 6);
	__builtin_memcpy(key.addr, addr, 16);
	return bpf_map_lookup_elem(&clients, &key);
}

static __always_inline bool tunnel_ours(const struct opening *o) { return tunnel_within(o, TUNNEL_TO, o->to); }

static __always_inline bool tunnel_allowed(const struct opening *o) { return tunnel_within(o, TUNNEL_FROM, o->from); }

/* Whether any tunnel ends here. */
static __always_inline bool tunnels_end(const struct control *control)
{
	return !params.front && control->tunnels >> (control->active & 1) & 1;
}

/* Takes the packet's tunnel off, if it has one that ends here. Returns the reason
 * that it is dropped for, or 0, and CAME_ above it. */
__noinline int inbound(ctx_t *ctx, __u32 active)
{
	struct opening o = {};
	struct count *n;
	__u32 bytes = ctx_len(ctx), end;

	o.generation = active & 1;
	end = tunnel_open(ctx, &o);
	if (end == DECAP_REFUSED)
		return REASON_TUNNEL_REFUSED;
	if (end == DECAP_MALFORMED)
		return REASON_MALFORMED;
	if (end == DECAP_CONGESTED)
		return REASON_TUNNEL_CONGESTED;
	if (end == DECAP_FAILED)
		return REASON_SEND_FAILED;
	n = bpf_map_lookup_elem(&tunnel_counts, &end);
	if (n) {
		n->packets++;
		n->bytes += bytes;
	}
	if (end != DECAP_IPIP)
		return end == DECAP_GUE ? CAME_GUE << 8 : 0;
	return (o.version == 6 ? CAME_IPIP6 : CAME_IPIP4) << 8;
}
