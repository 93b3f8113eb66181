/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * core.h: one packet through the data path. A front end defines ctx_t and the
 * ctx_ functions before it includes this file, and has one entry point.
 */
#pragma once

#include "deliver.h"
#include "steer.h"

static __always_inline void count(const struct pkt *p, const struct choice *c, enum reason reason)
{
	__u32 i = (c->service ? c->service->id : 0) * REASONS + (reason & (REASONS - 1)), slot = c->slot;
	__u64 bytes = p->end - p->l3;
	struct count *n = bpf_map_lookup_elem(&service_counts, &i);
	struct backend_count *b;

	if (n) {
		n->packets++;
		n->bytes += bytes;
	}
	if (!c->backend)
		return;
	b = bpf_map_lookup_elem(&backend_counts, &slot);
	if (!b)
		return;
	if (reason == REASON_REPLY || reason == REASON_ICMP_REPLY) {
		b->out.packets++;
		b->out.bytes += bytes;
	} else {
		b->in.packets++;
		b->in.bytes += bytes;
	}
	b->opened += c->opened;
}

static __always_inline void record(ctx_t *ctx, const struct choice *c, enum reason reason)
{
	struct verdict *v;
	__u32 zero = 0;

	if (!params.record)
		return;
	v = bpf_map_lookup_elem(&verdicts, &zero);
	if (!v)
		return;
	v->reason = reason;
	v->service = c->service ? c->service->id : 0;
	v->backend = c->backend ? c->slot + 1 : 0;
	v->new = c->opened;
}

static __always_inline int weir(ctx_t *ctx)
{
	struct rewrite r = {};
	struct choice c = {};
	struct pkt p = {};
	struct steering s;
	enum reason reason;
	enum parsed parsed;
	int verdict;
	__u32 zero = 0;

	s.control = bpf_map_lookup_elem(&control, &zero);
	if (!s.control)
		return ctx_pass;
	s.active = s.control->active & 1;
	s.generation = bpf_map_lookup_elem(&generations, &s.active);
	if (!s.generation)
		return ctx_pass;
	s.now = clock_now(s.control);
	parsed = parse(ctx, &p);
	if (parsed == PARSE_PULL && ctx_pull(ctx, &p)) {
		__builtin_memset(&p, 0, sizeof(p));
		parsed = parse(ctx, &p);
	}
	if (parsed != PARSED) {
		reason = parsed == PARSE_NOT_IP ? REASON_NOT_IP : REASON_MALFORMED;
		p.end = p.l3 = 0;
	} else {
		reason = steer(ctx, &s, &p, &c, &r);
	}
	if (reason < REASON_FRAGMENT) {
		verdict = ctx_pass;
	} else if (reason < REASON_FRAGMENT_EARLY) {
		if (p.ttl <= 1) {
			reason = REASON_TTL_EXPIRED;
			verdict = ctx_drop;
		} else {
			verdict = deliver(ctx, &s, &p, &c, &r, &reason);
		}
	} else {
		verdict = ctx_drop;
	}
	count(&p, &c, reason);
	record(ctx, &c, reason);
	return verdict;
}
