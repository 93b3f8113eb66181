/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * core.h: one packet through the data path. A front end defines ctx_t and the
 * ctx_ functions before it includes this file, and has one entry point.
 */
#pragma once

#include "deliver.h"
#include "echo.h"
#include "front.h"
#include "inbound.h"
#include "reject.h"
#include "steer.h"
#include "trace.h"

/* Counts the packet by reason and service, and by backend. */
static __always_inline void count(const struct pkt *p, int reason)
{
	__u32 service = p->service, slot = p->slot;
	__u64 bytes = p->end - p->l3;
	struct reason_counts *of_service = bpf_map_lookup_elem(&service_counts, &service);
	struct backend_count *b;

	if (of_service) {
		struct count *n = &of_service->by_reason[reason & (REASONS - 1)];

		n->packets++;
		n->bytes += bytes;
	}
	if (slot == NO_SLOT)
		return;
	slot += bpf_get_smp_processor_id() * MAX_BACKENDS;
	b = bpf_map_lookup_elem(&backend_counts, &slot);
	if (!b)
		return;
	if (reason == REASON_REPLY || reason == REASON_ICMP_REPLY || reason == REASON_OUTBOUND) {
		b->out.packets++;
		b->out.bytes += bytes;
	} else {
		b->in.packets++;
		b->in.bytes += bytes;
	}
	if (p->opened)
		b->opened++;
}

static __always_inline void record(const struct pkt *p, int reason)
{
	struct verdict *v;
	__u32 zero = 0;

	if (!params.record)
		return;
	v = bpf_map_lookup_elem(&verdicts, &zero);
	if (!v)
		return;
	v->reason = reason;
	v->service = p->service;
	v->backend = p->slot == NO_SLOT ? 0 : p->slot + 1;
	v->new = p->opened;
}

/* The packet in hand is too large for the stack in addition to what the functions need. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* from the network, from user space */
	__type(key, __u32);
	__type(value, struct pkt);
} packets SEC(".maps");

static __always_inline void begin(struct pkt *p, const struct control *control, bool inject)
{
	__builtin_memset(p, 0, offsetof(struct pkt, nat.src));
	p->active = control->active;
	p->now = clock_now(control);
	p->inject = inject;
	p->slot = NO_SLOT;
	p->number = p->old = p->spare = NO_NUMBER;
}

static __always_inline int weir(ctx_t *ctx, bool inject)
{
	const struct control *control = control_of();
	int reason, came = 0, verdict, parsed = PARSE_MALFORMED, traced = 0;
	__u32 which = inject;
	struct pkt *p = bpf_map_lookup_elem(&packets, &which);

	if (!control || !p)
		return ctx_pass;
	if (!inject && tunnels_end(control))
		came = inbound(ctx, control->active);
	reason = came & 0xff;
	for (int pulled = 0; pulled < 2; pulled++) {
		begin(p, control, inject);
		parsed = parse(ctx, p);
		if (!ctx_can_pull || parsed != PARSE_PULL || !ctx_pull(ctx, p))
			break;
	}
	p->came = came >> 8;
	if (parsed != PARSED) {
		if (reason == REASON_NONE)
			reason = parsed == PARSE_NOT_IP ? REASON_NOT_IP : REASON_MALFORMED;
		p->end = p->l3 = 0;
	} else if (reason == REASON_NONE) {
		reason = inject ? steer_held(ctx, p) : steer(ctx, p);
	}
	if (params.front)
		reason = front(p, reason);
	if (control->trace)
		traced = trace_begin(ctx, p, which);
	if (reason < REASON_FRAGMENT) {
		verdict = ctx_pass;
	} else if (reason >= REASON_FRAGMENT_EARLY) {
		verdict = ctx_drop;
		if (inject)
			; /* a fragment is not answered */
		else if (reason == REASON_SHARE_REFUSED && p->refused == REFUSED_REJECT)
			verdict = reject(ctx, p);
		else if (reason == REASON_ECHO_ANSWERED && !echo_reply(ctx, p))
			reason = REASON_ECHO_REFUSED;
		else if (reason == REASON_ECHO_ANSWERED)
			verdict = ctx_redirect(ctx, p, ctx_ifindex(ctx));
	} else if (p->ttl <= 1 && p->mode != MODE_MARK) { /* with a mark, the stack is the router */
		reason = REASON_TTL_EXPIRED;
		verdict = notify_sender(ctx, p, 0);
	} else {
		verdict = deliver(ctx, p, reason);
		reason = verdict >> 8 & 0xff;
		verdict = (__s8)verdict;
	}
	count(p, reason);
	record(p, reason);
	if (traced)
		trace_end(p, reason, which);
	return verdict;
}
