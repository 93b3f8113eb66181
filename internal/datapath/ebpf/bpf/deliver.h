/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * deliver.h: carries out what steering chose: hop limit, size, rewrite or
 * tunnel, link addresses, redirect. Next hops of backends come from netlink through
 * user space; those of clients from the kernel's routes (hops.h).
 */
#pragma once

#include "dsr.h"
#include "error.h"
#include "hops.h"
#include "icmp.h"
#include "rewrite.h"

/* Writes destination and source, which stand together. */
static __always_inline bool put_macs(ctx_t *ctx, const __u8 *macs)
{
	const __u32 *from = (const __u32 *)macs;
	void *data = ctx_data(ctx), *end = ctx_end(ctx);
	__u32 *to = data;

	if (data + ETH_LEN > end)
		return false;
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
	return true;
}

#define DELIVERED(verdict, reason) ((reason) << 8 | ((verdict) & 0xff))

/* Carries out a choice. Returns the hook's verdict and the reason. */
static __always_inline int deliver(ctx_t *ctx, struct pkt *p, int reason)
{
	const struct service *service = NULL;
	const struct backend *b;
	const __u8 *macs;
	__u32 ifindex, mtu, over = 0, size;

	b = backend_at(p->slot, p->version);
	if (!b)
		return DELIVERED(ctx_pass, reason);
	if (p->mode == MODE_MARK)
		return DELIVERED(ctx_mark(ctx, b->addr[0]), reason);
	if (p->back) {
		int found = ROUTE_NONE;
		const struct out *h = client_out(ctx, p, &found);

		if (!h) {
			csum_note(ctx, p);
			if (!nat_rewrite(ctx, p))
				goto failed;
			if (found == ROUTE_NO_NEIGHBOUR)
				return DELIVERED(ctx_resolve(ctx, p), reason);
			return DELIVERED(ctx_pass, reason);
		}
		macs = h->dmac;
		ifindex = h->ifindex;
		mtu = h->mtu;
	} else {
		const struct next_hop *h = &b->hop[b->cur & 1];

		if (h->state != HOP_READY) {
			/* As a plain forward the kernel can do it meanwhile. Any
			 * other mode would let it take the packet for its own. */
			if (h->state == HOP_FAILED || p->mode != MODE_NAT)
				goto failed;
			csum_note(ctx, p);
			if (!nat_rewrite(ctx, p))
				goto failed;
			return DELIVERED(ctx_pass, REASON_NO_NEIGHBOUR);
		}
		macs = h->dmac;
		ifindex = h->ifindex;
		mtu = h->mtu;
		if (p->mode == MODE_L3DSR) {
			service = service_at(p, p->service);
			if (!service)
				goto failed;
			over = tunnel_overhead(service, b);
		}
	}
	size = ctx_segment(ctx, p);
	if (size + over > mtu && !(over && ctx_shrinks(ctx, p) && size <= mtu)) {
		return DELIVERED(notify_sender(ctx, p, mtu - over), REASON_TOO_BIG);
	}
	csum_complete(ctx, p);
	if (!count_down(ctx, p))
		goto failed;
	if (p->mode == MODE_NAT) {
		if (!nat_rewrite_here(ctx, p))
			goto failed;
	} else if (p->mode == MODE_L3DSR) {
		service = service_at(p, p->service);
		if (!service || !tunnel(ctx, p, service, b, size + over <= mtu))
			goto failed;
	}
	if (!put_macs(ctx, macs))
		goto failed;
	return DELIVERED(ctx_redirect(ctx, p, ifindex), reason);
failed:
	return DELIVERED(ctx_drop, REASON_SEND_FAILED);
}
