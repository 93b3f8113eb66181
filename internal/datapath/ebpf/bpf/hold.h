/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * hold.h: gives an early fragment to user space, with the number of its entry in
 * fragments in place of a backend, and says when its first one came. No program reads the ring while weir is down: then the fragment is lost.
 */
#pragma once

#include "parse.h"
#include "rate.h"

struct held_event {
	struct event head;
	struct flow_key datagram;
	__u8 data[HOLD_BYTES];
};

static __always_inline bool hold(ctx_t *ctx, const struct pkt *p, const struct flow_key *k, __u32 number)
{
	struct held_event *e;
	__u32 n = p->len;

	barrier_var(n);
	if (n < ETH_LEN || n > HOLD_BYTES)
		return false;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e)
		return false;
	if (ctx_load(ctx, 0, e->data, n)) {
		bpf_ringbuf_discard(e, 0);
		return false;
	}
	__builtin_memset(&e->head, 0, sizeof(e->head));
	e->head.kind = EVENT_HELD;
	e->head.backend = number;
	e->head.time = p->now;
	e->head.ifindex = ctx_ifindex(ctx);
	e->head.length = e->head.captured = n;
	e->datagram = *k;
	bpf_ringbuf_submit(e, 0);
	return true;
}

static __always_inline void hold_release(__u64 now, const struct flow_key *k)
{
	struct {
		struct event head;
		struct flow_key datagram;
	} *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e)
		return;
	__builtin_memset(&e->head, 0, sizeof(e->head));
	e->head.kind = EVENT_RELEASE;
	e->head.time = now;
	e->datagram = *k;
	bpf_ringbuf_submit(e, 0);
}

/* Asks user space to resolve the next hop of the packet's destination: for each
 * address once a second, and for a thousand of them. More would push held
 * fragments out of the ring. */
__noinline int want_neighbour(struct pkt *p)
{
	struct {
		struct event head;
		struct flow_key datagram;
	} *e;
	const __u32 *addr;
	__u64 fingerprint, *last;
	__u32 i;

	if (!p)
		return 0;
	addr = p->nat.set_dst ? p->nat.dst : p->key.dst;
	fingerprint = ((__u64)addr[1] << 32 | addr[0]) * (params.hash[0] | 1) ^ ((__u64)addr[3] << 32 | addr[2]) * (params.hash[1] | 1);
	i = fingerprint >> 54;
	last = bpf_map_lookup_elem(&wanted, &i);
	fingerprint = fingerprint >> 22 << 32 | (__u32)(p->now / (params.ticks | 1));
	if (!last || *last == fingerprint || !rate_spend(RATE_NEIGHBOURS, THOUSAND, p->now))
		return 0;
	*last = fingerprint;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e)
		return 0;
	__builtin_memset(e, 0, sizeof(*e));
	e->head.kind = EVENT_NEIGHBOUR;
	e->head.time = p->now;
	__builtin_memcpy(e->datagram.dst, addr, 16);
	bpf_ringbuf_submit(e, 0);
	return 0;
}
