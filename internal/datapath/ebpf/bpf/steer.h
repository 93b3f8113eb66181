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
	old = *(volatile __u64 *)full;
	from = old > ns ? old : ns;
	if (from + service->flow_cost > ns + 1000000000ull)
		return false;
	/* Two at once: one of them is for free. */
	__sync_val_compare_and_swap(full, old, from + service->flow_cost);
	return true;
}

static __always_inline __u64 steering_hash(const struct service *service, const struct pkt *p)
{
	const __u64 *w = (const __u64 *)&p->key;
	__u64 form[5] = {w[0], w[1]};

	if (service->affinity != AFFINITY_SOURCE) {
		form[2] = w[2];
		form[3] = w[3];
		form[4] = w[4];
	}
	return tier_hash(p, form);
}

static __always_inline __u32 cell(const struct cells *c, __u32 i) 
{
	if (!c)
		return NO_SLOT;
	barrier_var(c);
	return c->slot[i & 3];
}

/* The slot that Maglev gives a flow, or NO_SLOT. */
__noinline __u32 maglev_select(struct pkt *p)
{
	const struct service *service;
	__u32 i, line;

	if (!p)
		return NO_SLOT;
	service = service_at(p, p->service);
	if (!service || !service->maglev_size)
		return NO_SLOT;
	i = service->maglev + steering_hash(service, p) % service->maglev_size;
	line = i >> 2;
	return cell(bpf_map_lookup_elem(&maglev, &line), i);
}

static __always_inline __u32 owner_slot(const struct service *service, __u32 owner)
{
	if (owner < service->owners_size) {
		__u32 i = service->owners + owner, line = i >> 2;

		return cell(bpf_map_lookup_elem(&owners, &line), i);
	}
	if (service->more_owners) {
		struct owner_key key = {.service = service->owners, .owner = owner};
		const __u32 *slot = bpf_map_lookup_elem(&far_owners, &key);

		return slot ? *slot : NO_SLOT;
	}
	return NO_SLOT;
}

/* Opens the flow's entry and forwards; a full table stops only mode NAT. */
static __always_inline int enter(struct pkt *p, __u32 slot, __u8 flags, int reason)
{
	int problem;

	p->slot = slot;
	problem = flow_open(p, flags);
	if (problem) {
		p->number = NO_NUMBER;
		if (p->mode == MODE_NAT) {
			p->slot = NO_SLOT;
			return problem;
		}
	}
	return reason;
}

/* The slot of the owner that the packet's CID names. Sets *cid. */
__noinline __u32 cid_slot(ctx_t *ctx, struct pkt *p, __u32 *found)
{
	const struct service *service;
	const struct backend *b;
	__u32 owner = 0, slot;

	if (!p || !found)
		return NO_SLOT;
	service = service_at(p, p->service);
	if (!service)
		return NO_SLOT;
	*found = cid_find(ctx, p, service, &owner);
	if (*found != CID_KNOWN)
		return NO_SLOT;
	slot = owner_slot(service, owner);
	if (slot == NO_SLOT)
		return NO_SLOT;
	b = backend_at(slot, p->version);
	return b && b->state != STATE_DOWN ? slot : NO_SLOT;
}

/* The order behind the service look-up. */
static __always_inline int steer_service(ctx_t *ctx, struct pkt *p, const struct service *service)
{
	int found = REASON_CONNTRACK, fresh = REASON_MAGLEV;
	__u32 slot, owner = NO_SLOT;

	if (service->down)
		return REASON_SERVICE_DOWN;
	if (service->layouts && p->kind == KIND_UDP) {
		__u32 cid = CID_NONE;

		owner = cid_slot(ctx, p, &cid);
		if (owner != NO_SLOT) {
			if (service->mode != MODE_NAT) {
				p->slot = owner;
				return REASON_CID;
			}
			found = REASON_CID;
		} else if (cid != CID_NONE) {
			found = fresh = REASON_CID_UNKNOWN;
		}
	}
	if (flow_find(p, service)) {
		if (owner == NO_SLOT || p->slot == owner) {
			flow_touch(p, service, p->tcp_flags);
			return found;
		}
		p->number = NO_NUMBER;
	}
	if (owner != NO_SLOT)
		return enter(p, owner, 0, REASON_CID);
	p->slot = NO_SLOT;
	if (!rate_take(service, p->now))
		return REASON_NEW_FLOW_RATE;
	slot = maglev_select(p);
	if (slot == NO_SLOT)
		return REASON_NO_BACKEND;
	return enter(p, slot, p->tcp_flags, fresh);
}

/* The first packet of a flow that a backend starts: opens the client's flow to
 * that backend, which leaves with the VIP. The key is the client's meanwhile. */
__noinline int steer_outbound(struct pkt *p)
{
	struct outbound_key key = {};
	const struct service *service;
	const struct generation *g;
	const struct outbound *o;
	const struct backend *b;
	struct flow_key sent;
	__u32 active;
	int problem;

	if (!p || p->kind != KIND_UDP)
		return REASON_NOT_SERVICE;
	active = p->active & 1;
	g = bpf_map_lookup_elem(&generations, &active);
	if (!g || !(g->flags & GENERATION_OUTBOUND))
		return REASON_NOT_SERVICE;
	__builtin_memcpy(key.addr, p->key.src, 16);
	key.port = p->key.sport;
	key.half = active;
	o = bpf_map_lookup_elem(&outbounds, &key);
	if (!o || bpf_map_lookup_elem(&inside, p->key.dst) || vip_covers(p, p->key.dst))
		return REASON_NOT_SERVICE;
	service = service_at(p, o->service);
	b = backend_at(o->slot, p->version);
	if (!service || !b || service->down || b->service != service->id || b->state == STATE_DOWN)
		return REASON_NOT_SERVICE;
	copy_key(&sent, &p->key);
	__builtin_memcpy(p->key.src, sent.dst, 16);
	__builtin_memcpy(p->key.dst, o->vip, 16);
	p->key.sport = sent.dport;
	p->key.dport = o->port;
	problem = REASON_NOT_SERVICE; /* the client is with a backend already */
	if (!flow_find(p, service)) {
		p->service = o->service;
		p->back = 1;
		p->slot = o->slot;
		problem = rate_take(service, p->now) ? flow_open(p, 0) : REASON_NEW_FLOW_RATE;
	}
	copy_key(&p->key, &sent);
	if (problem == REASON_NONE)
		return REASON_OUTBOUND;
	p->slot = NO_SLOT;
	p->number = NO_NUMBER;
	p->back = 0;
	return problem;
}

/* A packet to no VIP: a backend's reply in mode NAT, or not ours. */
static __always_inline int steer_reply(struct pkt *p, __u8 flags)
{
	const struct service *service;
	struct way *way;
	__u32 found = reply_find(p);

	if (!found)
		return steer_outbound(p);
	service = service_at(p, p->service);
	way = way_at(&replies, found - 1);
	if (!service || !way)
		return REASON_NOT_SERVICE;
	touch(p, service, way, flags, false);
	return REASON_REPLY;
}

static __always_inline int steer_echo(struct pkt *p)
{
	bool request = p->icmp_type == (p->version == 4 ? 8 : 128);
	const struct service *service;
	__u32 covered = vip_covers(p, p->key.dst), slot;

	if (!request)
		return covered ? REASON_NOT_STEERED : steer_reply(p, 0);
	if (!covered)
		return REASON_NOT_SERVICE;
	p->service = covered;
	service = service_at(p, covered);
	if (!service)
		return REASON_NOT_SERVICE;
	if (service->down)
		return REASON_SERVICE_DOWN;
	if (service->mode == MODE_NAT) {
		if (flow_find(p, service)) {
			flow_touch(p, service, 0);
			return REASON_ECHO;
		}
		if (!rate_take(service, p->now))
			return REASON_NEW_FLOW_RATE;
	}
	slot = maglev_select(p);
	if (slot == NO_SLOT)
		return REASON_NO_BACKEND;
	p->mode = service->mode;
	if (service->mode == MODE_NAT)
		return enter(p, slot, 0, REASON_ECHO);
	p->slot = slot;
	return REASON_ECHO;
}

static __always_inline bool is_echo(__u8 proto) { return proto == P_ICMP || proto == P_ICMPV6; }

static __always_inline int error_unknown(const struct pkt *p)
{
	return vip_covers(p, p->dst) ? REASON_ICMP_UNKNOWN : REASON_NOT_SERVICE;
}

/* An ICMP error goes where the flow it quotes goes. */
static __always_inline int steer_error(ctx_t *ctx, struct pkt *p)
{
	bool direct = same_address(p->dst, p->key.dst);
	const struct service *service;
	__u32 found, id, slot;
	int reason;

	if (p->quote_later) {
		reason = fragment_quoted(ctx, p);
		return reason ? reason : error_unknown(p);
	}
	found = vip_lookup((const struct addr *)p->key.dst, p->active, p->key.proto, p->key.dport);
	id = is_echo(p->key.proto) ? VIP_COVERED(found) : VIP_SERVICE(found);
	if (!id || !direct)
		return direct && reply_find(p) ? REASON_ICMP_REPLY : error_unknown(p);
	p->service = id;
	service = service_at(p, id);
	if (!service)
		return REASON_NOT_SERVICE;
	if (service->down)
		return REASON_SERVICE_DOWN;
	if (flow_find(p, service))
		return REASON_ICMP_ERROR;
	if (service->mode != MODE_NAT) {
		slot = maglev_select(p);
		if (slot != NO_SLOT) {
			p->slot = slot;
			return REASON_ICMP_ERROR;
		}
	}
	return REASON_ICMP_UNKNOWN;
}

/* What is neither TCP nor UDP, and later fragments. */
__noinline int steer_rest(ctx_t *ctx, struct pkt *p)
{
	if (!p)
		return REASON_NOT_SERVICE;
	if (p->later)
		return fragment_later(ctx, p);
	if (p->kind == KIND_ECHO)
		return steer_echo(p);
	if (p->kind == KIND_ICMP_ERROR)
		return steer_error(ctx, p);
	return vip_covers(p, p->key.dst) ? REASON_NOT_STEERED : REASON_NOT_SERVICE;
}

/* TCP, UDP and SCTP. */
static __always_inline int steer_transport(ctx_t *ctx, struct pkt *p)
{
	const struct service *service;

	p->service = VIP_SERVICE(vip_search(p->key.dst, p->active, p->key.proto, p->key.dport));
	if (!p->service)
		return steer_reply(p, p->tcp_flags);
	service = service_at(p, p->service);
	if (!service)
		return REASON_NOT_SERVICE;
	p->mode = service->mode;
	return steer_service(ctx, p, service);
}

static __always_inline int steer(ctx_t *ctx, struct pkt *p)
{
	const struct service *service;
	int reason;

	if (!p->later && (p->kind == KIND_TCP || p->kind == KIND_UDP || p->kind == KIND_SCTP))
		reason = steer_transport(ctx, p);
	else
		reason = steer_rest(ctx, p);
	if (p->slot != NO_SLOT) {
		service = service_at(p, p->service);
		if (!service)
			return REASON_NOT_SERVICE;
		p->mode = service->mode;
		if (p->mode == MODE_NAT)
			rewrite_for(p);
	}
	if (p->first)
		reason = fragment_first(ctx, p, reason);
	return reason;
}
