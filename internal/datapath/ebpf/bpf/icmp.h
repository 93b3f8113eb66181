/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * icmp.h: an ICMP error that passes NAT. The quoted packet runs the
 * other direction: the endpoint that is our destination is its source. Everything
 * that changes is brought into the ICMP checksum, which covers the quote.
 */
#pragma once

#include "nat.h"

/* Replaces an address in the packet and returns the change of the sum. */
static __always_inline __u64 swap_address(ctx_t *ctx, __u32 at, const __u32 *new, __u8 version)
{
	__u32 old[4] = {};

	if (version == 4) {
		ctx_load(ctx, at, &old[3], 4);
		ctx_store(ctx, at, &new[3], 4);
	} else {
		ctx_load(ctx, at, old, 16);
		ctx_store(ctx, at, new, 16);
	}
	return csum_change_address(old, new, version);
}

/* Applies a change to the checksum at an offset; returns what that changes in
 * the sum of what covers the checksum itself. */
static __always_inline __u64 swap_check(ctx_t *ctx, __u32 at, __u64 change, bool udp)
{
	__u16 old = 0, new;

	if (ctx_load(ctx, at, &old, 2) || (udp && !old))
		return 0;
	new = csum_apply(old, change);
	if (udp && !new)
		new = 0xffff;
	ctx_store(ctx, at, &new, 2);
	return (__u64)(__u16)~old + new;
}

struct endpoint {
	__u32 addr[4];
	__u16 port;
	__u8 destination;
	__u8 pad;
};

/* Gives one endpoint of an error and its quote another address and port. The
 * packet's key stays that of before. */
__noinline int nat_error(ctx_t *ctx, struct pkt *p, struct endpoint *to)
{
	__u64 icmp = 0, change, total = 0;
	const __u32 *endpoint;
	__u32 at, source, size;
	int check;

	if (!p || !to)
		return 0;
	source = p->version == 4 ? 12 : 8;
	size = p->version == 4 ? 4 : 16;
	endpoint = to->destination ? p->key.dst : p->key.src;
	/* The sender may be a router on the path: then its address stays. */
	at = p->l3 + source + (to->destination ? size : 0);
	__u32 now[4] = {0, 0, MAPPED, 0};

	if (p->version == 4)
		ctx_load(ctx, at, &now[3], 4);
	else
		ctx_load(ctx, at, now, 16);
	if (now[0] == endpoint[0] && now[1] == endpoint[1] && now[2] == endpoint[2] && now[3] == endpoint[3]) {
		change = swap_address(ctx, at, to->addr, p->version);
		if (p->version == 4)
			swap_check(ctx, p->l3 + 10, change, false);
		else
			icmp += change;
	}
	at = p->quote + source + (to->destination ? 0 : size);
	change = swap_address(ctx, at, to->addr, p->version);
	icmp += change;
	if (p->version == 4)
		icmp += swap_check(ctx, p->quote + 10, change, false);
	if (!p->quote_later) {
		if (to->port && (p->key.proto == P_TCP || p->key.proto == P_UDP) && p->end >= p->quote_l4 + 4u) {
			__u16 old = 0;

			at = p->quote_l4 + (to->destination ? 0 : 2);
			ctx_load(ctx, at, &old, 2);
			ctx_store(ctx, at, &to->port, 2);
			total = csum_change_port(old, to->port);
			change += total;
		}
		icmp += total;
		check = csum_offset(p->key.proto, 6);
		if (check >= 0 && p->end >= p->quote_l4 + check + 2u)
			icmp += swap_check(ctx, p->quote_l4 + check, change, p->key.proto == P_UDP);
	}
	swap_check(ctx, p->l4 + 2, icmp, false);
	return 1;
}

/* Rewrites an error that passes NAT. */
__noinline int nat_errors(ctx_t *ctx, struct pkt *p)
{
	struct endpoint to = {};
	const struct rewrite *r;

	if (!p)
		return 0;
	r = &p->nat;
	if (r->set_dst) {
		__builtin_memcpy(to.addr, r->dst, 16);
		to.port = r->dport;
		to.destination = 1;
		if (!nat_error(ctx, p, &to))
			return 0;
	}
	if (!r->set_src)
		return 1;
	__builtin_memcpy(to.addr, r->src, 16);
	to.port = r->sport;
	to.destination = 0;
	return nat_error(ctx, p, &to);
}

static __always_inline bool nat_rewrite(ctx_t *ctx, struct pkt *p)
{
	if (p->kind == KIND_ICMP_ERROR && !p->later)
		return nat_errors(ctx, p);
	return nat_plain(ctx, p);
}

/* The same where nanoseconds matter more than size. */
static __always_inline bool nat_rewrite_here(ctx_t *ctx, struct pkt *p)
{
	if (p->kind == KIND_ICMP_ERROR && !p->later)
		return nat_errors(ctx, p);
	return nat_plain_here(ctx, p);
}
