/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * deliver.h: carries out what steering chose: hop limit, size, rewrite or
 * tunnel, link addresses, redirect. Next hops of backends come from netlink by
 * way of user space; those of clients from the kernel's routes, looked up once
 * per client and CPU and kept for HOP_SECONDS or until routes change.
 */
#pragma once

#include "dsr.h"
#include "icmp.h"
#include "toobig.h"

enum { HOP_SECONDS = 8 };

/* Looks up the way to a client; false: the kernel must find it. */
static __noinline bool client_route(ctx_t *ctx, const struct steering *s, struct client_hop *h, const __u32 *dst,
				    const __u32 *src, __u8 version)
{
	struct bpf_fib_lookup *fib;
	__u32 zero = 0;

	fib = bpf_map_lookup_elem(&routes, &zero);
	if (!fib)
		return false;
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = ctx->ingress_ifindex;
	fib->tot_len = 1; /* asks for the MTU */
	if (version == 4) {
		fib->family = 2;
		fib->ipv4_dst = dst[3];
		fib->ipv4_src = src[3];
	} else {
		fib->family = 10;
		__builtin_memcpy(fib->ipv6_dst, dst, 16);
		__builtin_memcpy(fib->ipv6_src, src, 16);
	}
	if (bpf_fib_lookup(ctx, fib, sizeof(*fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return false;
	__builtin_memcpy(h->addr, dst, 16);
	__builtin_memcpy(h->dmac, fib->dmac, 6);
	__builtin_memcpy(h->smac, fib->smac, 6);
	h->ifindex = fib->ifindex;
	h->mtu = fib->tot_len > 1 ? fib->tot_len : 1500;
	h->routes = s->control->routes;
	h->until = s->now + HOP_SECONDS * (__u64)params.ticks;
	return true;
}

static __always_inline struct client_hop *client_hop(ctx_t *ctx, const struct steering *s, const __u32 *dst,
						     const __u32 *src, __u8 version)
{
	__u32 at = ((dst[0] ^ dst[1] ^ dst[2] ^ dst[3]) * 0x9e3779b1u >> 8) & params.hop_mask;
	struct client_hop *h = bpf_map_lookup_elem(&client_hops, &at);

	if (!h)
		return NULL;
	if (h->until > s->now && h->routes == s->control->routes && same_address(h->addr, dst))
		return h;
	return client_route(ctx, s, h, dst, src, version) ? h : NULL;
}

static __always_inline bool put_macs(ctx_t *ctx, const __u8 *dmac, const __u8 *smac)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx);

	if (data + ETH_LEN > end)
		return false;
	__builtin_memcpy(data, dmac, 6);
	__builtin_memcpy(data + 6, smac, 6);
	return true;
}

static __always_inline bool count_down(ctx_t *ctx, const struct pkt *p)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx), *ip = data + (p->l3 & 31);

	if (p->version == 6) {
		if (ip + IP6_LEN > end)
			return false;
		*(__u8 *)(ip + 7) = p->ttl - 1;
		return true;
	}
	if (ip + IP4_LEN > end)
		return false;
	__u16 *field = ip + 8, *check = ip + 10, old = *field;

	*(__u8 *)(ip + 8) = p->ttl - 1;
	*check = csum_apply(*check, csum_change_port(old, *field));
	return true;
}

/* Carries out a choice; c->backend is set. Returns the hook's verdict. */
static __always_inline int deliver(ctx_t *ctx, const struct steering *s, struct pkt *p, struct choice *c,
				   const struct rewrite *r, enum reason *reason)
{
	const struct service *service = c->service;
	const struct backend *b = c->backend;
	const __u8 *dmac, *smac;
	__u32 ifindex, mtu, over = 0, size;

	if (!service || !b)
		return ctx_pass;
	if (service->mode == MODE_MARK)
		return ctx_mark(ctx, b->addr[0]);
	if (c->back) {
		struct client_hop *h = client_hop(ctx, s, r->set_dst ? r->dst : p->key.dst,
						  r->set_src ? r->src : p->key.src, p->version);

		if (!h) {
			/* The kernel forwards this one, and learns the neighbour. */
			if (!nat_rewrite(ctx, p, r))
				goto failed;
			return ctx_pass;
		}
		dmac = h->dmac;
		smac = h->smac;
		ifindex = h->ifindex;
		mtu = h->mtu;
	} else {
		const struct next_hop *h = &b->hop[b->cur & 1];

		if (h->state != HOP_READY) {
			*reason = h->state == HOP_FAILED ? REASON_SEND_FAILED : REASON_NO_NEIGHBOUR;
			return h->state == HOP_FAILED ? ctx_drop : ctx_pass;
		}
		dmac = h->dmac;
		smac = h->smac;
		ifindex = h->ifindex;
		mtu = h->mtu;
		over = tunnel_overhead(service, b);
	}
	size = ctx_segment(ctx, p);
	if (size + over > mtu && !(over && ctx_shrinks(ctx, p) && size <= mtu)) {
		*reason = REASON_TOO_BIG;
		if (error_allowed(s->now) && p->kind != KIND_ICMP_ERROR && too_big(ctx, p, mtu - over))
			return ctx_redirect(ctx, ctx->ingress_ifindex);
		return ctx_drop;
	}
	csum_complete(ctx, p);
	if (!count_down(ctx, p))
		goto failed;
	if (service->mode == MODE_NAT) {
		if (!nat_rewrite(ctx, p, r))
			goto failed;
	} else if (service->mode == MODE_L3DSR) {
		struct outer o = {.length = p->end - p->l3, .family = b->family, .gue = service->tunnel == TUNNEL_GUE};

		o.fixed = size + over <= mtu;
		__builtin_memcpy(o.dst, b->addr, 16);
		if (b->family == 4)
			o.src[3] = service->outer4;
		else
			__builtin_memcpy(o.src, service->outer6, 16);
		if (!encapsulate(ctx, p, &o))
			goto failed;
	}
	if (!put_macs(ctx, dmac, smac))
		goto failed;
	return ctx_redirect(ctx, ifindex);
failed:
	*reason = REASON_SEND_FAILED;
	return ctx_drop;
}
