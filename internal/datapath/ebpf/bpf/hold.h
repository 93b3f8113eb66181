/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * hold.h: gives an early fragment to user space, with the number of its entry in
 * fragments in place of a backend, and says when its first one came. Nobody reads the ring while weir is down: then the fragment is lost.
 */
#pragma once

#include "parse.h"

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

/* Asks user space to resolve the way to an address. */
static __always_inline void want_neighbour(const struct pkt *p, const __u32 *addr)
{
	struct {
		struct event head;
		struct flow_key datagram;
	} *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e)
		return;
	__builtin_memset(e, 0, sizeof(*e));
	e->head.kind = EVENT_NEIGHBOUR;
	e->head.time = p->now;
	__builtin_memcpy(e->datagram.dst, addr, 16);
	bpf_ringbuf_submit(e, 0);
}
