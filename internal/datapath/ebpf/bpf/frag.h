/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * frag.h: fragments follow the first one of their datagram. One that comes
 * before it goes to user space, bounded in number; when the first one comes,
 * user space sends the others through the program again. In mode NAT the
 * datagram is also known under the addresses it leaves with, for ICMP errors
 * that quote one of its later fragments.
 */
#pragma once

#include "conntrack.h"
#include "hold.h"
#include "vip.h"

/* The endpoints that NAT gives a packet. */
struct rewrite {
	__u32 src[4], dst[4];
	__u16 sport, dport; /* 0: keep */
	__u8 set_src, set_dst;
	__u8 pad[2];
};

/* Fills in the rewrite of a packet whose choice is made. */
static __always_inline void rewrite_for(const struct pkt *p, const struct choice *c, struct rewrite *r)
{
	struct flow_entry *entry = c->number == NO_NUMBER ? NULL : entry_at(c->number);

	if (!entry)
		return;
	if (c->back) {
		__builtin_memcpy(r->src, entry->key.dst, 16);
		r->sport = entry->key.dport;
		r->set_src = 1;
		if (entry->nat) {
			__builtin_memcpy(r->dst, entry->key.src, 16);
			r->dport = entry->key.sport;
			r->set_dst = 1;
		}
		return;
	}
	__builtin_memcpy(r->dst, c->backend->addr, 16);
	r->dport = c->backend->port;
	r->set_dst = 1;
	if (c->service->has_snat && entry->nat) {
		__u32 at = entry->nat - 1;
		const struct addr *a = bpf_map_lookup_elem(&snat_addresses, &at);

		if (!a)
			return;
		__builtin_memcpy(r->src, a->word, 16);
		r->sport = entry->nat_port;
		r->set_src = 1;
	}
}

/* The key of the packet's own datagram, or of the one that an ICMP error quotes. */
static __always_inline void fragment_key(ctx_t *ctx, const struct pkt *p, struct flow_key *k)
{
	__builtin_memset(k, 0, sizeof(*k));
	if (p->quote_later) {
		__builtin_memcpy(k->src, p->key.dst, 16);
		__builtin_memcpy(k->dst, p->key.src, 16);
		k->proto = p->key.proto;
	} else if (p->kind == KIND_ICMP_ERROR) {
		if (p->version == 4) {
			k->src[2] = k->dst[2] = MAPPED;
			ctx_load(ctx, p->l3 + 12, &k->src[3], 4);
			ctx_load(ctx, p->l3 + 16, &k->dst[3], 4);
		} else {
			ctx_load(ctx, p->l3 + 8, k->src, 16);
			ctx_load(ctx, p->l3 + 24, k->dst, 16);
		}
		k->proto = p->proto;
	} else {
		__builtin_memcpy(k->src, p->key.src, 16);
		__builtin_memcpy(k->dst, p->key.dst, 16);
		k->proto = p->proto;
	}
	k->sport = p->id >> 16;
	k->dport = p->id;
	k->pad[0] = KEY_DATAGRAM;
}

static __always_inline struct fragment_entry *fragment_at(__u32 number)
{
	return bpf_map_lookup_elem(&fragment_entries, &number);
}

/* Returns the entry of a datagram, making a free one if asked to; NULL: none,
 * or full. fresh: it was made. */
static __noinline struct way *fragment_way(const struct steering *s, const struct print *print, __u32 *number, bool *fresh)
{
	struct way *way = table_find(&fragments, params.fragment_mask, print, number);

	*fresh = false;
	if (way && way_expiry(way->meta) > s->now)
		return way;
	*fresh = true;
	if (!way)
		way = table_claim(&fragments, params.fragment_mask, params.fragment_ways, print, s->now, number);
	return way;
}

/* Records a first fragment. False: full, or the datagram is lost already. */
static __always_inline bool fragment_record(const struct steering *s, const struct flow_key *k, struct fragment_entry *value)
{
	struct fragment_entry *e;
	struct print print;
	struct way *way;
	__u32 number;
	bool fresh;

	flow_print(k, &print);
	way = fragment_way(s, &print, &number, &fresh);
	e = way ? fragment_at(number) : NULL;
	if (!e)
		return false;
	if (!fresh) {
		if (e->kind == FRAGMENT_LOST)
			return false;
		if (e->kind == FRAGMENT_WAITING && e->held) {
			__sync_fetch_and_add((__u32 *)&s->control->held, -(__u32)e->held);
			hold_release(s, k);
		}
	}
	*e = *value;
	table_publish(way, print.print, way_meta(expiry_after(s->now, params.fragment_ttl), 0, 0));
	return true;
}

/* Remembers the decision on a first fragment. */
static __noinline enum reason fragment_first(ctx_t *ctx, const struct steering *s, struct pkt *p, struct choice *c,
					     const struct rewrite *r, enum reason reason)
{
	struct fragment_entry e = {};
	struct flow_key k;

	if (reason == REASON_NOT_SERVICE)
		return reason;
	e.kind = FRAGMENT_DECIDED;
	e.reason = reason;
	if (c->backend && c->service) {
		e.kind = FRAGMENT_FORWARD;
		e.target = c->slot | (__u32)c->backend->epoch << 16;
		e.service = c->service->id;
		e.back = reason == REASON_REPLY || reason == REASON_ICMP_REPLY;
		if (c->service->mode == MODE_NAT) {
			e.nat = 1;
			e.number = c->number;
			e.flow = c->number != NO_NUMBER && c->way ? c->way->print : 0;
		}
	}
	fragment_key(ctx, p, &k);
	if (!fragment_record(s, &k, &e) && reason >= REASON_FRAGMENT && reason < REASON_FRAGMENT_EARLY) {
		c->backend = NULL;
		return REASON_FRAGMENT_TABLE_FULL;
	}
	if (e.nat) {
		if (r->set_src)
			__builtin_memcpy(k.src, r->src, 16);
		if (r->set_dst)
			__builtin_memcpy(k.dst, r->dst, 16);
		k.pad[0] = KEY_LEFT;
		fragment_record(s, &k, &e);
	}
	return reason;
}

/* Repeats a first fragment's decision. */
static __always_inline enum reason fragment_follow(const struct steering *s, const struct pkt *p, struct choice *c,
						   const struct fragment_entry *e, enum reason reason)
{
	struct way *way;
	__u64 meta;

	if (!choose(s, p, c, e->target & 0xffff) || c->backend->epoch != (__u8)(e->target >> 16) ||
	    c->backend->state == STATE_DOWN) {
		c->backend = NULL;
		return REASON_FRAGMENT_UNKNOWN;
	}
	c->service = service_at(s, c->backend->service);
	if (!c->service || c->service->mode != MODE_NAT)
		return reason;
	way = way_at(&flows, e->number);
	meta = way ? *(volatile __u64 *)&way->meta : 0;
	if (!way || way->print != e->flow || way_expiry(meta) <= s->now || way_number(meta) != (e->target & 0xffffff)) {
		c->backend = NULL;
		return REASON_FRAGMENT_UNKNOWN;
	}
	c->way = way;
	c->number = e->number;
	return reason;
}

static __always_inline bool address_covered(const struct steering *s, const __u32 addr[4])
{
	struct destination to;

	vip_lookup(s->generation, s->active, addr, 0, 0, &to);
	return to.covered;
}

/* A backend's own traffic, which we only happen to see, passes. */
static __always_inline enum reason fragment_unknown(bool inside, enum reason reason)
{
	return inside ? REASON_NOT_SERVICE : reason;
}

/* Steers a fragment that is not the first of its datagram. */
static __noinline enum reason fragment_later(ctx_t *ctx, const struct steering *s, struct pkt *p, struct choice *c)
{
	struct fragment_entry *e;
	struct flow_key k;
	struct print print;
	struct way *way;
	__u32 number;
	bool fresh, from_inside;

	fragment_key(ctx, p, &k);
	from_inside = bpf_map_lookup_elem(&inside, k.src) != NULL;
	if (!from_inside && !address_covered(s, k.dst))
		return REASON_NOT_SERVICE;
	flow_print(&k, &print);
	if (!params.hold) {
		way = table_find(&fragments, params.fragment_mask, &print, &number);
		e = way && way_expiry(way->meta) > s->now ? fragment_at(number) : NULL;
		if (!e || e->kind >= FRAGMENT_WAITING)
			return fragment_unknown(from_inside, REASON_FRAGMENT_UNKNOWN);
		fresh = false;
	} else {
		way = fragment_way(s, &print, &number, &fresh);
		e = way ? fragment_at(number) : NULL;
		if (!e)
			return fragment_unknown(from_inside, REASON_HOLD_FULL);
	}
	if (fresh) {
		__builtin_memset(e, 0, sizeof(*e));
		e->kind = FRAGMENT_WAITING;
	}
	if (e->kind == FRAGMENT_WAITING) {
		if (s->control->held >= params.hold || e->held >= params.hold_each || !hold(ctx, s, p, &k)) {
			__sync_fetch_and_add((__u32 *)&s->control->held, -(__u32)e->held);
			e->held = 0;
			e->kind = FRAGMENT_LOST;
		} else {
			__sync_fetch_and_add((__u32 *)&s->control->held, 1);
			e->held++;
		}
	}
	table_publish(way, print.print, way_meta(expiry_after(s->now, params.fragment_ttl), 0, 0));
	switch (e->kind) {
	case FRAGMENT_WAITING:
		return REASON_FRAGMENT_EARLY;
	case FRAGMENT_LOST:
		return fragment_unknown(from_inside, REASON_HOLD_FULL);
	case FRAGMENT_DECIDED:
		return e->reason;
	}
	c->back = e->back;
	return fragment_follow(s, p, c, e, REASON_FRAGMENT);
}

/* An ICMP error that quotes a later fragment of a datagram that left us.
 * REASON_NONE: no such datagram. */
static __always_inline enum reason fragment_quoted(ctx_t *ctx, const struct steering *s, struct pkt *p, struct choice *c)
{
	struct fragment_entry *e;
	struct flow_key k;
	struct print print;
	struct way *way;
	__u32 number;

	if (!same_address(p->dst, p->key.dst))
		return REASON_NONE;
	fragment_key(ctx, p, &k);
	k.pad[0] = KEY_LEFT;
	flow_print(&k, &print);
	way = table_find(&fragments, params.fragment_mask, &print, &number);
	e = way && way_expiry(way->meta) > s->now ? fragment_at(number) : NULL;
	if (!e || e->kind != FRAGMENT_FORWARD)
		return REASON_NONE;
	c->back = !e->back;
	return fragment_follow(s, p, c, e, c->back ? REASON_ICMP_REPLY : REASON_ICMP_ERROR);
}
