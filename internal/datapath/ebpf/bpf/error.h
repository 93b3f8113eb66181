/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * error.h: turns a packet into an ICMP error for its sender: fragmentation
 * needed (RFC 1191), packet too big (RFC 8201), or time exceeded (RFC 792,
 * RFC 4443). At most 1,000 of either a second; never about an error, a later fragment, or
 * from an address that is no one's (RFC 1812, 4.3.2.7).
 */
#pragma once

#include "csum.h"
#include "rate.h"

enum { QUOTE = 256 };
enum { ERROR_HOPS = 0, ERROR_PORT = 1 << 16 }; /* in place of an MTU */
enum { ROUTE_SKIP_NEIGHBOUR = 4, ROUTE_SOURCE = 16 }; /* of bpf_fib_lookup; Linux 6.7 */

struct error_header {
	union {
		__u8 b[IP6_LEN + ICMP_LEN];
		__u16 h[24];
		__u32 w[12];
	};
};

/* Whether the packet has a sender that may get an answer. */
static __always_inline bool has_sender(const struct pkt *p)
{
	__u8 first = p->version == 4 ? *(const __u8 *)&p->key.src[3] : *(const __u8 *)p->key.src;

	if (p->kind == KIND_ICMP_ERROR || p->later)
		return false;
	return p->version == 4 ? first && first != 127 && first < 224 : first != 0xff && (p->key.src[0] | p->key.src[1]);
}

/* Whether the packet's sender may get an error, and the rate allows one. */
static __always_inline bool error_allowed(const struct pkt *p, __u32 rate)
{
	return has_sender(p) && rate_spend(rate, THOUSAND, p->now);
}

/* Puts the address that this machine has toward the sender into p->from. Where
 * it has none, or the kernel does not know it, the packet's destination stays. */
__noinline int own_address(ctx_t *ctx, struct pkt *p)
{
	struct bpf_fib_lookup *fib;

	if (!p)
		return 0;
	fib = &p->fib;
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = ctx_ifindex(ctx);
	if (p->version == 4) {
		fib->family = 2;
		fib->ipv4_dst = p->key.src[3];
	} else {
		fib->family = 10;
		__builtin_memcpy(fib->ipv6_dst, p->key.src, 16);
	}
	if (bpf_fib_lookup(ctx, fib, sizeof(*fib), ROUTE_SKIP_NEIGHBOUR | ROUTE_SOURCE))
		return 0;
	if (p->version == 4)
		p->from[3] = fib->ipv4_src;
	else
		__builtin_memcpy(p->from, fib->ipv6_src, 16);
	return 1;
}

/* A quoted checksum that a card was to finish (also GRO's) will be: what is
 * behind the helper cannot know that it is a quote now. So it gets the value
 * that finishing leaves alone, f = ~(sum of the rest + f), and the error's own
 * checksum stays right. */
__noinline int quote_finish(ctx_t *ctx, struct pkt *p, __u32 shift, __u32 end)
{
	__u32 at, rest;
	__u64 pseudo;
	__u16 field = 0;

	if (!p || ctx_must_complete || p->first || (p->kind != KIND_TCP && p->kind != KIND_UDP))
		return 0;
	at = p->l4 + shift + (p->kind == KIND_TCP ? 16 : 6);
	if (at + 2 > end || ctx_load(ctx, at, &field, 2))
		return 0;
	pseudo = csum_address(p->key.src, p->version) + csum_address(p->key.dst, p->version) + bpf_htons(p->proto) +
		 bpf_htons(p->end - p->l4);
	if (field != csum_fold(pseudo))
		return 0;
	rest = csum_fold(csum_range(ctx, p->l4 + shift, end) + (__u16)~field);
	field = (0xffff - rest) * 0x8000 % 0xffff; /* 0x8000 halves, modulo 0xffff */
	return ctx_store(ctx, at, &field, 2);
}

/* Makes the frame an error from p->from: too big for mtu, or ERROR_HOPS: time exceeded, or
 * ERROR_PORT: port unreachable.
 * Returns 1 if it is one now, to go back where it came from. */
__noinline int make_error(ctx_t *ctx, struct pkt *p, __u32 mtu)
{
	struct error_header e = {};
	__u32 l3, size, quote;
	__u8 macs[12];
	__u64 sum;

	if (!p || ctx_load(ctx, 0, macs, 12) || macs[0] & 1) /* to many: no one asked */
		return 0;
	l3 = p->l3;
	if (p->end < l3 + IP4_LEN || p->end > 0xffff)
		return 0;
	quote = p->end - l3;
	if (quote > QUOTE)
		quote = QUOTE;
	size = (p->version == 4 ? IP4_LEN : IP6_LEN) + ICMP_LEN;
	if (ctx_truncate(ctx, l3 + quote) || ctx_insert(ctx, l3, size, 0))
		return 0;
	ctx_store(ctx, 0, macs + 6, 6);
	ctx_store(ctx, 6, macs, 6);
	quote_finish(ctx, p, size, l3 + size + quote);
	sum = csum_range(ctx, l3 + size, l3 + size + quote);
	if (p->version == 4) {
		e.b[0] = 0x45;
		e.h[1] = bpf_htons(IP4_LEN + ICMP_LEN + quote);
		e.b[8] = 64;
		e.b[9] = P_ICMP;
		e.w[3] = p->from[3];
		e.w[4] = p->key.src[3];
		e.h[5] = ~csum_fold((__u64)e.w[0] + e.w[1] + e.w[2] + e.w[3] + e.w[4]);
		e.b[20] = mtu ? 3 : 11;
		e.b[21] = mtu == ERROR_PORT ? 3 : mtu ? 4 : 0;
		e.h[13] = bpf_htons((__u16)mtu);
		e.h[11] = ~csum_fold(sum + e.w[5] + e.w[6]);
		return !ctx_store(ctx, l3, e.b, IP4_LEN + ICMP_LEN);
	}
	e.b[0] = 0x60;
	e.h[2] = bpf_htons(ICMP_LEN + quote);
	e.b[6] = P_ICMPV6;
	e.b[7] = 64;
	__builtin_memcpy(&e.w[2], p->from, 16);
	__builtin_memcpy(&e.w[6], p->key.src, 16);
	if (mtu == ERROR_PORT) {
		e.b[40] = 1;
		e.b[41] = 4;
	} else {
		e.b[40] = mtu ? 2 : 3;
		e.w[11] = bpf_htonl(mtu);
	}
	for (int i = 2; i < 10; i++)
		sum += e.w[i];
	e.h[21] = ~csum_fold(sum + e.w[10] + e.w[11] + bpf_htons(ICMP_LEN + quote) + bpf_htons(P_ICMPV6));
	return !ctx_store(ctx, l3, e.b, IP6_LEN + ICMP_LEN);
}

/* What becomes of a packet that does not go on: its sender is notified, if it may
 * be. mtu as in make_error. */
static __always_inline int notify_sender(ctx_t *ctx, struct pkt *p, __u32 mtu)
{
	if (!error_allowed(p, mtu ? RATE_SIZES : RATE_HOPS))
		return ctx_drop;
	__builtin_memcpy(p->from, p->key.dst, 16);
	if (!mtu)
		own_address(ctx, p);
	return make_error(ctx, p, mtu) ? ctx_redirect(ctx, p, ctx_ifindex(ctx)) : ctx_drop;
}
