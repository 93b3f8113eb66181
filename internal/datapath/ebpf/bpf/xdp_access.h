/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * xdp_access.h: what the XDP front end does to a parsed packet.
 */
#pragma once

#include "csum.h"
#include "hold.h"

static __always_inline bool ctx_pull(ctx_t *ctx, const struct pkt *p) { return false; }

/* The IP length of the largest packet that leaves. */
static __always_inline __u32 ctx_segment(ctx_t *ctx, const struct pkt *p) { return p->end - p->l3; }

/* Whether segments become smaller by themselves. */
static __always_inline bool ctx_shrinks(ctx_t *ctx, const struct pkt *p) { return false; }

/* Brings a transport checksum up to date. */
static __always_inline bool ctx_update_check(ctx_t *ctx, const struct pkt *p, __u32 at, __u64 addresses, __u64 ports)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx);
	__u16 *check = data + (at & 0x7ff), new;

	if ((void *)(check + 1) > end)
		return false;
	if (p->partial) { /* goes to the stack as it came */
		*check = csum_fold(addresses + *check);
		return true;
	}
	if (p->proto == P_UDP && !*check)
		return true;
	new = csum_apply(*check, addresses + ports);
	*check = p->proto == P_UDP && !new ? 0xffff : new;
	return true;
}

/* Redirect also where the frame came in: XDP_TX on a veth does not wake its peer. */
static __always_inline int ctx_redirect(ctx_t *ctx, const struct pkt *p, __u32 ifindex)
{
	return bpf_redirect(ifindex, 0);
}

/* The client's neighbour is not resolved: user space requests it. Meanwhile the
 * kernel may forward the packet, unless the VIP is an address of its own. */
static __always_inline int ctx_resolve(ctx_t *ctx, struct pkt *p)
{
	want_neighbour(p);
	return ctx_pass;
}
