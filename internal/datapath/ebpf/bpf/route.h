/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * route.h: next hops by the kernel's routes and neighbours. A look-up costs a hundred
 * nanoseconds, so a flow remembers the index of its next hop in client_hops for one
 * stretch of time (some seconds), or until routes change.
 *
 * Each element of client_hops carries the stretch in which it was last looked up. No program
 * remembers an element beyond the stretch of its stamp, so one whose stamp is two
 * behind is read by no one and may be taken: by a swap of the stamp, then the
 * next hop is written, then the new stamp. Where all elements that a next hop may have are
 * taken, the packet goes by an element of its own CPU, and the next one looks
 * its next hop up again.
 */
#pragma once

#include "clock.h"
#include "parse.h"

enum { ROUTE_NONE = -1, ROUTE_NO_NEIGHBOUR = -2 };

enum { HOP_FREE = 0, HOP_PROBE = 16, HOP_TAG_SHIFT = 12, HOP_TAG_BITS = 19 };

#define HOP_BUSY (~0u)
#define HOP_ROUTES 0x5bd1u /* strides of routes among those of time */

/* The stretch of time of a packet. */
static __always_inline __u32 hop_stretch(const struct pkt *p) { return p->now >> params.hop_shift; }

/* What flow_entry.hop has above the index. The highest bit is clear: an entry
 * that remembers none (NO_NUMBER) never looks like one that does. */
static __always_inline __u32 hop_tag(const struct pkt *p, const struct control *control)
{
	return ((hop_stretch(p) + control->routes * HOP_ROUTES) & ((1u << HOP_TAG_BITS) - 1)) << HOP_TAG_SHIFT;
}

/* Whether flows may remember an element by this stamp. Clocks of CPUs may be one
 * apart. */
static __always_inline bool hop_fresh(__u32 stamp, __u32 stretch)
{
	__s32 age = stretch - stamp;

	return stamp != HOP_FREE && age >= -1 && age < 2;
}

static __always_inline bool out_same(const struct out *a, const struct out *b)
{
	const __u32 *x = (const __u32 *)a, *y = (const __u32 *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4]));
}

/* Asks the kernel for the next hop of a packet's destination. */
static __always_inline int route_of(ctx_t *ctx, struct pkt *p)
{
	const __u32 *dst = p->nat.set_dst ? p->nat.dst : p->key.dst, *src = p->nat.set_src ? p->nat.src : p->key.src;
	struct bpf_fib_lookup *fib = &p->fib;
	long result;

	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = params.home ? params.home : ctx_ifindex(ctx);
	fib->tot_len = 1; /* requests the MTU */
	if (p->version == 4) {
		fib->family = 2;
		fib->ipv4_dst = dst[3];
		fib->ipv4_src = src[3];
	} else {
		fib->family = 10;
		__builtin_memcpy(fib->ipv6_dst, dst, 16);
		__builtin_memcpy(fib->ipv6_src, src, 16);
	}
	result = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
	if (result)
		return result == BPF_FIB_LKUP_RET_NO_NEIGH ? ROUTE_NO_NEIGHBOUR : ROUTE_NONE;
	__builtin_memcpy(p->out.dmac, fib->dmac, 6);
	__builtin_memcpy(p->out.smac, fib->smac, 6);
	p->out.ifindex = fib->ifindex;
	p->out.mtu = fib->tot_len > 1 ? fib->tot_len : 1500;
	p->out.pad = 0;
	return 0;
}

/* Enters the next hop p->out; returns its index, which a flow may remember if it
 * is below CLIENT_HOPS. */
__noinline __u32 hop_enter(struct pkt *p)
{
	__u32 stretch, index;
	struct client_hop *h;
	__u64 address;

	if (!p)
		return 0;
	stretch = hop_stretch(p);
	address = (__u64)p->out.ifindex << 32 | *(__u32 *)(p->out.dmac + 2);
	index = address * (params.hash[0] | 1) >> 32;
	for (int probe = 0; probe < HOP_PROBE; probe++) {
		__u32 i = (index + probe) & (CLIENT_HOPS - 1), stamp;

		h = bpf_map_lookup_elem(&client_hops, &i);
		if (!h)
			break;
		stamp = *(volatile __u32 *)&h->stamp;
		if (stamp == HOP_BUSY)
			continue;
		if (hop_fresh(stamp, stretch)) {
			if (!out_same(&h->out, &p->out))
				continue;
			if (stamp == stretch || __sync_val_compare_and_swap(&h->stamp, stamp, stretch) == stamp)
				return i;
			continue;
		}
		if (__sync_val_compare_and_swap(&h->stamp, stamp, HOP_BUSY) != stamp)
			continue;
		h->out = p->out;
		asm volatile("" ::: "memory");
		*(volatile __u32 *)&h->stamp = stretch;
		return i;
	}
	index = CLIENT_HOPS + ((bpf_get_smp_processor_id() * 2 + (p->inject & 1)) & (SPARE_HOPS - 1));
	h = bpf_map_lookup_elem(&client_hops, &index);
	if (h)
		h->out = p->out;
	return index;
}
