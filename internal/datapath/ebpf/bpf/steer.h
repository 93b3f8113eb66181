/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * steer.h: which backend owns this packet? The order is that of package steer,
 * function by function: service, fragment, CID, conntrack, Maglev.
 */
#pragma once

#include "cid.h"
#include "conntrack.h"
#include "frag.h"
#include "vip.h"

/* Spends the credit of one new flow. The bucket is kept as the time at which
 * it would be full again, so one word holds it. */
static __always_inline bool rate_take(const struct service *service, __u64 now)
{
	__u32 id = service->id;
	__u64 *full, old, from, ns;

	if (!service->flow_cost)
		return true;
	full = bpf_map_lookup_elem(&rates, &id);
	if (!full)
		return true;
	ns = now * params.tick_ns;
#pragma unroll
	for (int i = 0; i < 3; i++) {
		old = *full;
		from = old > ns ? old : ns;
		if (from + service->flow_cost > ns + 1000000000ull)
			return false;
		if (__sync_val_compare_and_swap(full, old, from + service->flow_cost) == old)
			return true;
	}
	return true;
}

static __always_inline __u64 steering_hash(const struct service *service, const struct flow_key *key)
{
	const __u64 *w = (const __u64 *)key;
	__u64 form[5] = {w[0], w[1]};

	if (service->affinity != AFFINITY_SOURCE) {
		form[2] = w[2];
		form[3] = w[3];
		form[4] = w[4];
	}
	return siphash40(form);
}

/* The slot that Maglev gives a flow, or NO_SLOT. */
static __always_inline __u32 maglev_select(const struct service *service, const struct flow_key *key)
{
	const struct cells *c;
	__u32 i;

	if (!service->maglev_size)
		return NO_SLOT;
	i = service->maglev + steering_hash(service, key) % service->maglev_size;
	__u32 line = i >> 2;
	c = bpf_map_lookup_elem(&maglev, &line);
	return c ? c->slot[i & 3] : NO_SLOT;
}

static __always_inline __u32 owner_slot(const struct service *service, __u32 owner)
{
	if (owner < service->owners_size) {
		__u32 i = service->owners + owner, line = i >> 2;
		const struct cells *c = bpf_map_lookup_elem(&owners, &line);

		return c ? c->slot[i & 3] : NO_SLOT;
	}
	if (service->more_owners) {
		struct owner_key key = {.service = service->owners, .owner = owner};
		const __u32 *slot = bpf_map_lookup_elem(&far_owners, &key);

		return slot ? *slot : NO_SLOT;
	}
	return NO_SLOT;
}

/* Opens the flow's entry and forwards; a full table stops only mode NAT. */
static __always_inline enum reason enter(const struct steering *s, struct pkt *p, const struct print *print,
					 struct choice *c, __u32 slot, __u8 flags, enum reason reason)
{
	enum reason problem;

	if (!choose(s, p, c, slot))
		return REASON_NO_BACKEND;
	problem = flow_open(s, p, print, c, flags);
	if (problem != REASON_NONE) {
		if (c->service->mode == MODE_NAT) {
			c->backend = NULL;
			return problem;
		}
		c->number = NO_NUMBER;
	}
	return reason;
}

/* The order behind the service look-up. */
static __always_inline enum reason steer_service(ctx_t *ctx, const struct steering *s, struct pkt *p, struct choice *c)
{
	const struct service *service = c->service;
	enum reason found = REASON_CONNTRACK, fresh = REASON_MAGLEV;
	struct print print;
	__u32 slot = NO_SLOT;
	bool owned = false;

	if (service->down)
		return REASON_SERVICE_DOWN;
	if (service->layouts && p->kind == KIND_UDP) {
		__u32 owner = 0;
		enum cid_found cid = cid_find(ctx, p, service, &owner);

		if (cid != CID_NONE) {
			found = fresh = REASON_CID_UNKNOWN;
			if (cid == CID_KNOWN)
				slot = owner_slot(service, owner);
			if (slot != NO_SLOT && choose(s, p, c, slot) && c->backend->state != STATE_DOWN) {
				if (service->mode != MODE_NAT)
					return REASON_CID;
				owned = true;
				found = fresh = REASON_CID;
			}
			c->backend = NULL;
		}
	}
	flow_print(&p->key, &print);
	if (flow_find(s, p, &print, c) && (!owned || c->slot == slot)) {
		flow_touch(s, c, owned ? 0 : p->tcp_flags, true);
		return found;
	}
	if (owned)
		return enter(s, p, &print, c, slot, 0, REASON_CID);
	if (!rate_take(service, s->now))
		return c->backend = NULL, REASON_NEW_FLOW_RATE;
	slot = maglev_select(service, &p->key);
	if (slot == NO_SLOT)
		return c->backend = NULL, REASON_NO_BACKEND;
	return enter(s, p, &print, c, slot, p->tcp_flags, fresh);
}

/* A packet to no VIP: a backend's reply in mode NAT, or not ours. */
static __always_inline enum reason steer_reply(const struct steering *s, struct pkt *p, struct choice *c, __u8 flags)
{
	if (!reply_find(s, p, c))
		return REASON_NOT_SERVICE;
	flow_touch(s, c, flags, false);
	return REASON_REPLY;
}

static __always_inline enum reason steer_echo(const struct steering *s, struct pkt *p, struct choice *c)
{
	bool request = p->icmp_type == (p->version == 4 ? 8 : 128);
	struct destination to;
	struct print print;
	__u32 slot;

	vip_lookup(s->generation, s->active, p->key.dst, 0, 0, &to);
	if (!request)
		return to.covered ? REASON_NOT_STEERED : steer_reply(s, p, c, 0);
	if (!to.covered)
		return REASON_NOT_SERVICE;
	c->service = service_at(s, to.covered);
	if (!c->service)
		return REASON_NOT_SERVICE;
	if (c->service->down)
		return REASON_SERVICE_DOWN;
	if (c->service->mode == MODE_NAT) {
		flow_print(&p->key, &print);
		if (flow_find(s, p, &print, c)) {
			flow_touch(s, c, 0, true);
			return REASON_ECHO;
		}
		if (!rate_take(c->service, s->now))
			return REASON_NEW_FLOW_RATE;
	}
	slot = maglev_select(c->service, &p->key);
	if (slot == NO_SLOT)
		return REASON_NO_BACKEND;
	if (c->service->mode == MODE_NAT)
		return enter(s, p, &print, c, slot, 0, REASON_ECHO);
	return choose(s, p, c, slot) ? REASON_ECHO : REASON_NO_BACKEND;
}

static __always_inline bool is_echo(__u8 proto) { return proto == P_ICMP || proto == P_ICMPV6; }

static __always_inline enum reason error_unknown(const struct steering *s, const struct pkt *p)
{
	struct destination to;

	vip_lookup(s->generation, s->active, p->dst, 0, 0, &to);
	return to.covered ? REASON_ICMP_UNKNOWN : REASON_NOT_SERVICE;
}

/* An ICMP error goes where the flow it quotes goes. */
static __always_inline enum reason steer_error(ctx_t *ctx, const struct steering *s, struct pkt *p, struct choice *c)
{
	bool direct = same_address(p->dst, p->key.dst);
	struct destination to;
	__u32 place, slot;

	if (p->quote_later)
		return fragment_quoted(ctx, s, p, c) ?: error_unknown(s, p);
	vip_lookup(s->generation, s->active, p->key.dst, p->key.proto, p->key.dport, &to);
	place = is_echo(p->key.proto) ? to.covered : to.service;
	if (!place || !direct) {
		if (direct && reply_find(s, p, c))
			return REASON_ICMP_REPLY;
		return error_unknown(s, p);
	}
	c->service = service_at(s, place);
	if (!c->service)
		return REASON_NOT_SERVICE;
	if (c->service->down)
		return REASON_SERVICE_DOWN;
	struct print print;

	flow_print(&p->key, &print);
	if (flow_find(s, p, &print, c))
		return REASON_ICMP_ERROR;
	if (c->service->mode != MODE_NAT) {
		slot = maglev_select(c->service, &p->key);
		if (slot != NO_SLOT && choose(s, p, c, slot))
			return REASON_ICMP_ERROR;
	}
	return REASON_ICMP_UNKNOWN;
}

/* What is neither TCP, UDP nor SCTP of this family, in one function of its own
 * so that the common way stays short. */
static __noinline enum reason steer_rest(ctx_t *ctx, const struct steering *s, struct pkt *p, struct choice *c)
{
	struct destination to;

	if (p->later)
		return fragment_later(ctx, s, p, c);
	if (p->kind == KIND_ECHO)
		return steer_echo(s, p, c);
	if (p->kind == KIND_ICMP_ERROR)
		return steer_error(ctx, s, p, c);
	vip_lookup(s->generation, s->active, p->key.dst, 0, 0, &to);
	return to.covered ? REASON_NOT_STEERED : REASON_NOT_SERVICE;
}

static __always_inline enum reason steer(ctx_t *ctx, const struct steering *s, struct pkt *p, struct choice *c,
					 struct rewrite *r)
{
	enum reason reason;

	c->number = NO_NUMBER;
	if (!p->later && (p->kind == KIND_TCP || p->kind == KIND_UDP || p->kind == KIND_SCTP)) {
		struct destination to;

		vip_lookup(s->generation, s->active, p->key.dst, p->key.proto, p->key.dport, &to);
		if (to.service) {
			c->service = service_at(s, to.service);
			if (!c->service)
				return REASON_NOT_SERVICE;
			reason = steer_service(ctx, s, p, c);
		} else if (s->generation->flags & GENERATION_REPLIES) {
			reason = steer_reply(s, p, c, p->tcp_flags);
		} else {
			return REASON_NOT_SERVICE;
		}
	} else {
		reason = steer_rest(ctx, s, p, c);
	}
	if (c->backend && c->service && c->service->mode == MODE_NAT)
		rewrite_for(p, c, r);
	if (p->first)
		reason = fragment_first(ctx, s, p, c, r, reason);
	return reason;
}
