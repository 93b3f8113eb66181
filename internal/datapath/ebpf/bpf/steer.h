/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * steer.h: which backend owns this packet? The order is that of package steer,
 * function by function: service, fragment, CID, conntrack, Maglev.
 */
#pragma once

#include "cid.h"
#include "conntrack.h"
#include "echo.h"
#include "frag.h"
#include "rate.h"
#include "vip.h"

static __always_inline __u64 steering_hash(const struct service *service, const struct pkt *p)
{
	const __u64 *w = (const __u64 *)&p->key;
	__u64 form[5] = {w[0], w[1]};

	if (service->affinity != AFFINITY_SOURCE) {
		form[2] = w[2];
		form[3] = w[3];
		form[4] = key_end(&p->key);
	}
	if (service->affinity > AFFINITY_CID)
		form[4] &= ~0xffffull; /* the source port */
	if (service->affinity == AFFINITY_DESTINATION_PORT)
		form[0] = form[1] = 0;
	return tier_hash(p, form);
}

static __always_inline __u32 slot_of(const struct slot_line *c, __u32 i)
{
	if (!c)
		return NO_SLOT;
	barrier_var(c);
	return c->slot[i & 3];
}

/* The slot in an element of the tables, or NO_SLOT; then p->refused says whether it is
 * the share of a backend without a server. */
static __always_inline __u32 slot_in(struct pkt *p, __u32 i)
{
	__u32 line = i >> 2, slot = slot_of(bpf_map_lookup_elem(&maglev, &line), i);

	if (slot < SLOT_REJECT)
		return slot;
	p->refused = NO_SLOT - slot;
	return NO_SLOT;
}

/* The slot that Maglev gives a flow, or NO_SLOT. */
static __always_inline __u32 maglev_slot(struct pkt *p, const struct service *service)
{
	if (!service->maglev_size)
		return NO_SLOT;
	return slot_in(p, service->maglev + steering_hash(service, p) % service->maglev_size);
}

__noinline __u32 maglev_select(struct pkt *p)
{
	const struct service *service = p ? service_at(p, p->service) : NULL;

	return service ? maglev_slot(p, service) : NO_SLOT;
}

enum { BY_EARLIER = 1 << 16 }; /* above the slot that midstream_select returns */

/* The slot of a packet without an entry that opens no connection: lb.Service.SelectMidstream. */
__noinline __u32 midstream_select(struct pkt *p)
{
	const struct service *service = p ? service_at(p, p->service) : NULL;
	__u32 i, now, before;

	if (!service || !service->maglev_size)
		return NO_SLOT;
	i = steering_hash(service, p) % service->maglev_size;
	now = slot_in(p, service->maglev + i);
	if (!service->earlier)
		return now;
	i += service->earlier & ~3u;
	if (p->key.proto != P_TCP)
		i += (service->maglev_size + 3) & ~3u;
	before = slot_in(p, i);
	if (before == now || before == NO_SLOT)
		return now;
	p->refused = REFUSED_NOT;
	return before | BY_EARLIER;
}

/* The slot of a flow without an entry, whose packet gets one or not: steer.Engine.choose. */
static __always_inline __u32 choose(struct pkt *p, const struct service *service, bool enters, int *reason)
{
	__u32 found;

	if (!service->earlier || (enters && p->kind == KIND_TCP && opens(p->tcp_flags)))
		return maglev_slot(p, service);
	found = midstream_select(p);
	if (found & BY_EARLIER && *reason == REASON_MAGLEV)
		*reason = REASON_EARLIER_TABLE;
	return found & 0xffff;
}

static __always_inline __u32 owner_slot(const struct service *service, __u32 layout, __u32 owner)
{
	const struct cid_layout *l = &service->layout[layout & (MAX_LAYOUTS - 1)];

	if (owner < l->owners_size) {
		__u32 i = l->owners + owner, line = i >> 2;

		return slot_of(bpf_map_lookup_elem(&owners, &line), i);
	}
	if (service->flags & SERVICE_MORE_OWNERS) {
		struct owner_key key = {.owners = l->owners, .owner = owner};
		const __u32 *slot = bpf_map_lookup_elem(&large_owners, &key);

		return slot ? *slot : NO_SLOT;
	}
	return NO_SLOT;
}

/* Opens the flow's entry and forwards; a full table stops only mode NAT. */
static __always_inline int entered(struct pkt *p, int problem, int reason)
{
	if (problem) {
		p->number = NO_NUMBER;
		if (p->mode == MODE_NAT) {
			p->slot = NO_SLOT;
			return problem;
		}
	}
	return reason;
}

/* With a reason: the flow's entry is still to be opened, to p->slot. That is
 * done where stacks are shallow. */
enum { OPEN = 0x80 };

static __always_inline int enter(struct pkt *p, __u32 slot, int reason)
{
	p->slot = slot;
	return reason | OPEN;
}

/* A flow's first packet: one function, for a stack of its own. */
__noinline int flow_start(struct pkt *p, int reason)
{
	const struct service *service;
	__u32 slot;

	if (!p)
		return REASON_NO_BACKEND;
	service = service_at(p, p->service);
	if (service && service->maglev_size && snat_refuses(p, service))
		return entered(p, REASON_SNAT_EXHAUSTED, reason); /* before the hash: a flood has many of them */
	slot = service ? choose(p, service, true, &reason) : NO_SLOT;
	if (slot == NO_SLOT)
		return REASON_NO_BACKEND;
	p->slot = slot;
	return entered(p, flow_make(p, p->tcp_flags, true), reason);
}

/* The slot of a live owner, or NO_SLOT. */
static __always_inline __u32 live_owner(const struct pkt *p, const struct service *service, __u32 layout, __u32 owner)
{
	__u32 slot = owner_slot(service, layout, owner);
	const struct backend *b;

	if (slot == NO_SLOT)
		return NO_SLOT;
	b = backend_at(slot, p->version);
	return b && b->state != STATE_DOWN ? slot : NO_SLOT;
}

/* The slot of the owner that the packet's CID names, and enum cid_found above it. */
__noinline __u32 cid_slot(ctx_t *ctx, struct pkt *p)
{
	const struct service *service;
	__u32 layout = 0, owner = 0, found;

	if (!p)
		return NO_SLOT;
	service = service_at(p, p->service);
	if (!service)
		return NO_SLOT;
	found = cid_find(ctx, p, service, &layout, &owner);
	return found << 16 | (found == CID_KNOWN ? live_owner(p, service, layout, owner) & 0xffff : NO_SLOT);
}

/* Steers a flow to the owner that its CID names, in a mode whose replies are not
 * translated. Its entry follows; a flow without one gets one where it would go
 * elsewhere by Maglev, as what has no CID does, and the rate permits. */
__noinline int cid_entry(struct pkt *p, __u32 owner)
{
	const struct service *service = p ? service_at(p, p->service) : NULL;
	const struct table_slot *slot;

	if (!service)
		return REASON_NO_BACKEND;
	if (!flow_find_here(p, service)) {
		if ((midstream_select(p) & 0xffff) == owner)
			checked_enter(p, owner);
		else if (rate_enter(service, p->now))
			return enter(p, owner, REASON_CID);
		return REASON_CID;
	}
	if (p->slot != owner) {
		p->number = NO_NUMBER;
		return enter(p, owner, REASON_CID);
	}
	flow_touch(p, service, p->tcp_flags);
	slot = table_at(&flows, p->number);
	if (slot && meta_proven(*(volatile const __u64 *)&slot->meta) && service->ttl_udp >= 2 * params.ticks)
		checked_enter(p, owner);
	return REASON_CID;
}

/* Whether the connection of the packet's flow is closed. A new one goes where Maglev
 * says; it takes the entry over, so new_flow_rate does not count it. */
static __always_inline bool reopens(const struct pkt *p)
{
	const struct table_slot *slot = table_at(&flows, p->number);

	return slot && meta_state(*(volatile const __u64 *)&slot->meta) == FLOW_CLOSING;
}

static __always_inline int no_backend(struct pkt *p)
{
	p->slot = NO_SLOT;
	return REASON_NO_BACKEND;
}

/* The order behind the service look-up. */
static __always_inline int steer_service(ctx_t *ctx, struct pkt *p, const struct service *service)
{
	int found = REASON_CONNTRACK, fresh = REASON_MAGLEV;
	__u32 owner = NO_SLOT;

	if (service->down)
		return REASON_SERVICE_DOWN;
	if (service->layouts && p->kind == KIND_UDP) {
		__u32 cid, id = 0;

		cid = cid_find_first(ctx, p, service, &id);
		if (cid != CID_NONE) {
			owner = live_owner(p, service, 0, id);
		} else {
			owner = cid_slot(ctx, p);
			cid = owner >> 16;
			owner &= 0xffff;
		}
		if (owner != NO_SLOT)
			found = REASON_CID;
		else if (cid != CID_NONE)
			found = fresh = REASON_CID_UNKNOWN;
	}
	flow_fingerprint_of(p);
	if (owner != NO_SLOT && service->mode != MODE_NAT) {
		p->slot = owner;
		return checked_here(p, owner) ? REASON_CID : cid_entry(p, owner);
	}
	if (flow_find_here(p, service)) {
		if (opens(p->tcp_flags) && reopens(p)) {
			owner = maglev_select(p);
			if (owner != p->slot) {
				p->number = NO_NUMBER;
				return owner == NO_SLOT ? no_backend(p) : enter(p, owner, REASON_MAGLEV);
			}
		}
		if (owner == NO_SLOT || p->slot == owner) {
			flow_touch(p, service, p->tcp_flags);
			return found;
		}
		p->number = NO_NUMBER;
	}
	if (owner != NO_SLOT) {
		p->owned = 1;
		return enter(p, owner, REASON_CID);
	}
	p->slot = NO_SLOT;
	if (service->mode == MODE_NAT)
		return rate_take(service, p->now) ? flow_start(p, fresh) : REASON_NEW_FLOW_RATE;
	if (!rate_enter(service, p->now)) {
		p->slot = choose(p, service, false, &fresh);
		return p->slot == NO_SLOT ? REASON_NO_BACKEND : fresh;
	}
	if (p->spare == NO_NUMBER)
		return flow_start(p, fresh);
	entry_soon(p->spare);
	p->slot = choose(p, service, true, &fresh);
	if (p->slot == NO_SLOT)
		return REASON_NO_BACKEND;
	return flow_make_plain(p, service, p->tcp_flags) ? fresh : flow_start(p, fresh);
}

/* A packet to no VIP: a backend's reply in mode NAT, or not ours. */
static __always_inline int steer_reply(struct pkt *p, __u32 found, __u8 flags)
{
	const struct service *service;
	struct table_slot *slot;

	if (!found)
		return REASON_NOT_SERVICE;
	service = service_at(p, p->service);
	slot = table_at(&replies, found - 1);
	if (!service || !slot)
		return REASON_NOT_SERVICE;
	touch(p, service, slot, found - 1, flags, false);
	return REASON_REPLY;
}

/* The first UDP packet of a flow that a backend starts: it opens the client's
 * flow to that backend and leaves with the VIP. Until that entry is there, the
 * key is the client's. */
__noinline int steer_outbound(struct pkt *p)
{
	struct outbound_key key = {};
	const struct service *service;
	const struct generation *g;
	const struct outbound *o;
	const struct backend *b;
	__u32 active;

	if (!p || p->kind != KIND_UDP)
		return REASON_NOT_SERVICE;
	active = p->active & 1;
	g = bpf_map_lookup_elem(&generations, &active);
	if (!g || !g->outbound)
		return REASON_NOT_SERVICE;
	__builtin_memcpy(key.addr, p->key.src, 16);
	key.port = p->key.sport;
	key.set = g->outbound;
	o = bpf_map_lookup_elem(&outbounds, &key);
	if (!o || bpf_map_lookup_elem(&nat_backends, p->key.dst) || vip_covers(p, p->key.dst))
		return REASON_NOT_SERVICE;
	service = service_at(p, o->service);
	b = backend_at(o->slot, p->version);
	if (!service || !b || service->down || b->service != service->id || b->state == STATE_DOWN)
		return REASON_NOT_SERVICE;
	copy_key(&p->sent, &p->key);
	__builtin_memcpy(p->key.src, p->sent.dst, 16);
	__builtin_memcpy(p->key.dst, o->vip, 16);
	p->key.sport = p->sent.dport;
	p->key.dport = o->port;
	if (flow_find(p, service)) { /* the client is with a backend already */
		copy_key(&p->key, &p->sent);
		p->number = NO_NUMBER;
		p->slot = NO_SLOT;
		return REASON_NOT_SERVICE;
	}
	p->service = o->service;
	if (!rate_take(service, p->now)) {
		copy_key(&p->key, &p->sent);
		return REASON_NEW_FLOW_RATE;
	}
	p->mode = MODE_NAT;
	p->back = 1;
	return enter(p, o->slot, REASON_OUTBOUND);
}

__noinline int outbound_open(struct pkt *p)
{
	int problem;

	if (!p)
		return REASON_FLOW_TABLE_FULL;
	problem = flow_open(p, 0);
	copy_key(&p->key, &p->sent);
	return problem;
}

/* A reply, or the start of a backend's own flow. */
static __always_inline int steer_answer(struct pkt *p, __u32 found)
{
	return found == REPLY_UNKNOWN ? steer_outbound(p) : steer_reply(p, found, p->tcp_flags);
}

__noinline int steer_echo_reply(struct pkt *p)
{
	if (!p)
		return REASON_NOT_SERVICE;
	return vip_covers(p, p->key.dst) ? REASON_NOT_STEERED : steer_reply(p, reply_find(p), 0);
}

__noinline int steer_echo(struct pkt *p)
{
	const struct service *service;
	__u32 covered, slot;

	if (!p)
		return REASON_NOT_SERVICE;
	covered = vip_covers(p, p->key.dst);
	if (!covered)
		return REASON_NOT_SERVICE;
	p->service = covered;
	if (covered >= MAX_SERVICES && !client_served(p))
		return REASON_SOURCE_REFUSED;
	service = service_at(p, p->service);
	if (!service)
		return REASON_NOT_SERVICE;
	if (service->down)
		return REASON_SERVICE_DOWN;
	if (service->flags & SERVICE_ANSWERS)
		return steer_answered(p, service);
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
		return enter(p, slot, REASON_ECHO);
	p->slot = slot;
	return REASON_ECHO;
}

static __always_inline bool is_echo(__u8 proto) { return proto == P_ICMP || proto == P_ICMPV6; }

static __always_inline int error_unknown(const struct pkt *p)
{
	return vip_covers(p, p->dst) ? REASON_ICMP_UNKNOWN : REASON_NOT_SERVICE;
}

/* An ICMP error that quotes a later fragment. */
__noinline int steer_quoted(ctx_t *ctx, struct pkt *p)
{
	int reason;

	if (!p)
		return REASON_NOT_SERVICE;
	reason = fragment_quoted(ctx, p);
	return reason ? reason : error_unknown(p);
}

/* An ICMP error goes where the flow it quotes goes. */
__noinline int steer_error(struct pkt *p)
{
	const struct service *service;
	__u32 found, id, slot;
	bool direct;

	if (!p)
		return REASON_NOT_SERVICE;
	direct = same_address(p->dst, p->key.dst);
	found = vip_lookup((const struct addr *)p->key.dst, p->active, p->key.proto, p->key.dport);
	id = is_echo(p->key.proto) ? VIP_COVERED(found) : VIP_SERVICE(found);
	if (direct && id >= MAX_SERVICES) {
		p->service = id;
		id = client_served(p) ? p->service : 0;
		p->service = 0;
	}
	if (!id || !direct)
		return direct && reply_find(p) ? REASON_ICMP_REPLY : error_unknown(p);
	p->service = id;
	service = service_at(p, id);
	if (!service)
		return REASON_NOT_SERVICE;
	if (service->down)
		return REASON_SERVICE_DOWN;
	if (is_echo(p->key.proto) && service->flags & SERVICE_ANSWERS)
		return REASON_ICMP_UNKNOWN; /* about a reply of this machine */
	if (flow_find(p, service))
		return REASON_ICMP_ERROR;
	if (service->mode != MODE_NAT && !params.front) {
		slot = midstream_select(p) & 0xffff;
		if (slot != NO_SLOT) {
			p->slot = slot;
			return REASON_ICMP_ERROR;
		}
	}
	return REASON_ICMP_UNKNOWN;
}

/* What is neither TCP nor UDP, and later fragments. Stacks add up, so what is
 * called here is not called from one function more. */
static __always_inline int steer_rest(ctx_t *ctx, struct pkt *p)
{
	if (p->later)
		return fragment_later(ctx, p);
	if (p->kind == KIND_ECHO)
		return p->icmp_type == (p->version == 4 ? 8 : 128) ? steer_echo(p) : steer_echo_reply(p);
	if (p->kind == KIND_ICMP_ERROR)
		return p->quote_later ? steer_quoted(ctx, p) : steer_error(p);
	return vip_covers(p, p->key.dst) ? REASON_NOT_STEERED : REASON_NOT_SERVICE;
}

/* TCP, UDP and SCTP. */
static __always_inline int steer_transport(ctx_t *ctx, struct pkt *p)
{
	const struct service *service;

	p->service = VIP_SERVICE(vip_of(p));
	if ((__u32)p->service - 1 >= MAX_SERVICES - 1) {
		if (!p->service)
			return steer_answer(p, reply_find_here(p));
		if (!client_served(p))
			return REASON_SOURCE_REFUSED;
	}
	service = service_at(p, p->service);
	if (!service)
		return REASON_NOT_SERVICE;
	p->mode = service->mode;
	return steer_service(ctx, p, service);
}

/* Makes the kernel forget which reason it is, so that it verifies what follows
 * once and not for each. */
static __always_inline int any_reason(struct pkt *p, int reason)
{
	*(volatile __u8 *)&p->reason = reason;
	return *(volatile __u8 *)&p->reason;
}

/* Whether the entry that a rewrite came from is still this flow's: if it made
 * room in between, the new endpoints may be another flow's. */
static __always_inline bool rewrite_stands(const struct pkt *p)
{
	const struct flow_entry *entry;
	const struct table_slot *slot;

	if (p->back) {
		if (p->opened)
			return true;
		entry = entry_at(p->number);
		return entry && *(volatile const __u64 *)&entry->reply == p->fingerprint;
	}
	if (!p->nat.set_src)
		return true;
	slot = table_at(&flows, p->number);
	return slot && *(volatile const __u64 *)&slot->fingerprint == p->fingerprint;
}

static __always_inline bool take_mode(struct pkt *p)
{
	const struct service *service = service_at(p, p->service);

	if (service)
		p->mode = service->mode;
	return service;
}

static __always_inline int steer(ctx_t *ctx, struct pkt *p)
{
	bool transport = !p->later && (p->kind == KIND_TCP || p->kind == KIND_UDP || (p->kind == KIND_SCTP && !params.front));
	int reason = transport ? steer_transport(ctx, p) : steer_rest(ctx, p);

	reason = any_reason(p, reason);
	if (reason == REASON_NO_BACKEND && p->refused)
		reason = REASON_SHARE_REFUSED;
	if (reason & OPEN)
		reason = entered(p, p->back ? outbound_open(p) : flow_open(p, p->tcp_flags), reason & ~OPEN);
	if (p->slot != NO_SLOT) {
		if ((!transport || p->back) && !take_mode(p))
			return REASON_NOT_SERVICE;
		if (p->mode == MODE_NAT) {
			rewrite_for(p);
			if (transport && !rewrite_stands(p)) {
				p->slot = NO_SLOT;
				return REASON_FLOW_TABLE_FULL;
			}
		}
	}
	if (p->first)
		reason = fragment_first(ctx, p, reason);
	return reason;
}

/* A fragment that waited in user space, which gets no other packet from
 * fragment_hold: the verifier walks only what it needs. */
static __always_inline int steer_held(ctx_t *ctx, struct pkt *p)
{
	int reason;

	if (!p->later)
		return REASON_FRAGMENT_UNKNOWN;
	reason = any_reason(p, fragment_later(ctx, p));
	if (p->slot != NO_SLOT) {
		if (!take_mode(p))
			return REASON_NOT_SERVICE;
		if (p->mode == MODE_NAT)
			rewrite_for(p);
	}
	return reason;
}
