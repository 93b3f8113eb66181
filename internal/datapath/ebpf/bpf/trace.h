/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * trace.h: packets with their decisions, for `weir lb trace`. While control.trace
 * is 0 this costs one load. The head of a packet is copied before it is
 * rewritten, since that is what its sender sent; the event follows the verdict.
 */
#pragma once

#include "clock.h"
#include "maps.h"
#include "parse.h"

/* Written by the tracer. */
struct trace_filter {
	__u64 until;    /* ns, CLOCK_MONOTONIC: a tracer that ended is not served for ever */
	__u64 reasons;  /* bit per reason */
	__u64 lost;     /* events that found the ring full */
	__u32 addr[4];  /* network order */
	__u32 mask[4];
	__u32 service;  /* stable number; 0: any */
	__u32 both;     /* the prefix may be the destination's too */
};

struct trace_event {
	__u64 time;     /* ns, CLOCK_MONOTONIC */
	__u32 reason;
	__u32 service;  /* stable number */
	__u32 backend;  /* slot + 1 */
	__u32 ifindex;
	__u32 length;   /* of the frame */
	__u32 captured; /* bytes in data */
	__u32 opened;   /* an entry was made */
	__u32 pad;
	struct flow_key key;
	__u8 data[TRACE_BYTES];
};
_Static_assert(sizeof(struct trace_event) == 80 + TRACE_BYTES, "no padding");

MAP(ARRAY, trace_filters, __u32, struct trace_filter, 1, BPF_F_MMAPABLE);
MAP(PERCPU_ARRAY, trace_events, __u32, struct trace_event, 2, 0); /* by whether injected, as packets */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} traces SEC(".maps");

static __always_inline bool trace_covers(const struct trace_filter *f, const __u32 addr[4])
{
	return (addr[0] & f->mask[0]) == f->addr[0] && (addr[1] & f->mask[1]) == f->addr[1] &&
	       (addr[2] & f->mask[2]) == f->addr[2] && (addr[3] & f->mask[3]) == f->addr[3];
}

/* Keeps the packet as it came, if the filter wants its service and source. */
__noinline int trace_begin(ctx_t *ctx, struct pkt *p, __u32 which)
{
	const struct trace_filter *f;
	struct trace_event *e;
	__u32 zero = 0, n;

	f = bpf_map_lookup_elem(&trace_filters, &zero);
	e = bpf_map_lookup_elem(&trace_events, &which);
	if (!f || !e || !p || (f->service && f->service != p->service))
		return 0;
	if (!trace_covers(f, p->key.src) && !(f->both && trace_covers(f, p->key.dst)))
		return 0;
	e->time = bpf_ktime_get_ns();
	if (e->time > f->until)
		return 0;
	n = ctx_len(ctx);
	e->length = n;
	if (n > TRACE_BYTES)
		n = TRACE_BYTES;
	barrier_var(n);
	if (n < 1 || n > TRACE_BYTES || ctx_load(ctx, 0, e->data, n))
		return 0;
	e->captured = n;
	e->ifindex = ctx_ifindex(ctx);
	__builtin_memcpy(&e->key, &p->key, sizeof(e->key));
	return 1;
}

/* Reports what became of it, if the filter wants the reason. */
__noinline int trace_end(struct pkt *p, int reason, __u32 which)
{
	struct trace_filter *f;
	struct trace_event *e;
	__u32 zero = 0;

	f = bpf_map_lookup_elem(&trace_filters, &zero);
	e = bpf_map_lookup_elem(&trace_events, &which);
	if (!f || !e || !p || !(f->reasons >> (reason & 63) & 1))
		return 0;
	e->reason = reason;
	e->service = p->service;
	e->backend = p->slot == NO_SLOT ? 0 : p->slot + 1;
	e->opened = p->opened;
	if (bpf_ringbuf_output(&traces, e, sizeof(*e), 0))
		__sync_fetch_and_add(&f->lost, 1);
	return 0;
}
