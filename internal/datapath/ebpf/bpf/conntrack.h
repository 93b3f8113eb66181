/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * conntrack.h: entries of flows and of their replies. An entry belongs to a
 * slot and its epoch: once the slot has another backend, its entries are a
 * miss. A flow's entry and its reply's expire together; expiry is written only
 * when it moves by a second or more.
 */
#pragma once

#include "flow.h"
#include "parse.h"
#include "siphash.h"

#define NO_SLOT 0xffffu      /* of cells; not a backend */
#define NO_NUMBER 0xffffffffu

/* What is the same for the whole packet. */
struct steering {
	const struct generation *generation;
	const struct control *control;
	__u64 now;
	__u32 active;
};

/* What steering chose. */
struct choice {
	const struct service *service;
	const struct backend *backend;
	struct way *way;  /* the flow's entry, if number is not NO_NUMBER */
	__u32 number;
	__u32 slot;
	__u8 back;        /* from the backend to the client */
	__u8 opened;
};

/* A reply's key hashes apart from a flow's of the same addresses. */
enum { KEY_FLOW, KEY_REPLY, KEY_DATAGRAM, KEY_LEFT };

static __always_inline const struct backend *backend_at(__u32 slot, __u8 version)
{
	__u32 i = (slot << 1 | (version == 6)) & (2 * MAX_BACKENDS - 1);

	return bpf_map_lookup_elem(&backends, &i);
}

static __always_inline const struct service *service_at(const struct steering *s, __u32 id)
{
	__u32 i = s->active * MAX_SERVICES + (id & (MAX_SERVICES - 1));

	return bpf_map_lookup_elem(&services, &i);
}

/* Makes a slot the packet's backend. */
static __always_inline bool choose(const struct steering *s, const struct pkt *p, struct choice *c, __u32 slot)
{
	c->backend = backend_at(slot, p->version);
	c->slot = slot;
	return c->backend != NULL;
}

static __always_inline __u32 flow_ttl(const struct service *service, __u32 state, __u8 proto)
{
	switch (state) {
	case FLOW_OPENING:
		return service->ttl_opening;
	case FLOW_CLOSING:
		return service->ttl_closing;
	case FLOW_ESTABLISHED:
		return service->ttl_open;
	}
	return proto == P_SCTP ? service->ttl_sctp : service->ttl_udp;
}

static __always_inline __u32 state_next(__u32 state, __u8 flags, bool from_client)
{
	if (state == FLOW_PLAIN)
		return state;
	if (flags & (FLAG_FIN | FLAG_RST))
		return FLOW_CLOSING;
	if (flags & FLAG_SYN && from_client)
		return FLOW_OPENING;
	if (state == FLOW_OPENING && flags & FLAG_ACK && from_client)
		return FLOW_ESTABLISHED;
	return state;
}

static __always_inline __u32 state_first(__u8 proto, __u8 flags)
{
	if (proto != P_TCP)
		return FLOW_PLAIN;
	if (flags & (FLAG_FIN | FLAG_RST))
		return FLOW_CLOSING;
	return flags & FLAG_SYN ? FLOW_OPENING : FLOW_ESTABLISHED;
}

/* Finds the live entry of the packet's flow, if its backend still serves the
 * service. */
static __always_inline bool flow_find(const struct steering *s, const struct pkt *p, const struct print *print,
				      struct choice *c)
{
	__u32 number;
	struct way *way = table_find(&flows, params.flow_mask, print, &number);
	__u64 meta;

	if (!way)
		return false;
	meta = *(volatile __u64 *)&way->meta;
	if (way_expiry(meta) <= s->now)
		return false;
	if (!choose(s, p, c, way_slot(meta)) || c->backend->epoch != way_epoch(meta) ||
	    c->backend->service != c->service->id || c->backend->state == STATE_DOWN) {
		c->backend = NULL;
		return false;
	}
	c->way = way;
	c->number = number;
	return true;
}

static __always_inline struct flow_entry *entry_at(__u32 number)
{
	return bpf_map_lookup_elem(&flow_entries, &number);
}

static __always_inline struct way *way_at(void *table, __u32 number)
{
	__u32 i = number / WAYS;
	struct bucket *b = bpf_map_lookup_elem(table, &i);

	return b ? &b->way[number % WAYS] : NULL;
}

/* Follows TCP and renews the entry and its reply's. */
static __always_inline void flow_touch(const struct steering *s, struct choice *c, __u8 flags, bool from_client)
{
	__u64 meta = *(volatile __u64 *)&c->way->meta, old = way_expiry(meta), fresh, moved;
	__u32 was = way_state(meta), state = state_next(was, flags, from_client);
	const struct service *service = c->service;
	struct flow_entry *entry;
	struct print reply;
	struct way *way;
	__u32 number;

	if (!service)
		return;
	/* State PLAIN is UDP here: SCTP is no protocol of this data path. */
	fresh = expiry_after(s->now, flow_ttl(service, state, P_UDP));
	moved = fresh > old ? fresh - old : old - fresh;
	if (moved < params.ticks) {
		if (state != was)
			*(volatile __u64 *)&c->way->meta = way_meta(old, state, way_number(meta));
		return;
	}
	*(volatile __u64 *)&c->way->meta = way_meta(fresh, state, way_number(meta));
	if (service->mode != MODE_NAT)
		return;
	entry = entry_at(c->number);
	if (!entry || !entry->reply)
		return;
	reply.print = entry->reply;
	reply.place = print_place(reply.print);
	way = table_find(&replies, params.flow_mask, &reply, &number);
	if (way && way_number(way->meta) == (c->number & 0xffffff))
		*(volatile __u64 *)&way->meta = way_meta(fresh, 0, c->number & 0xffffff);
}

/* Enters one reply key unless another live flow has it. */
static __always_inline bool reply_reserve(const struct steering *s, const struct flow_key *key, __u64 *print_out,
					  __u64 expiry, __u32 number)
{
	struct print print;
	struct way *way;
	__u32 at;

	flow_print(key, &print);
	way = table_find(&replies, params.flow_mask, &print, &at);
	if (way) {
		__u64 meta = way->meta;

		if (way_expiry(meta) > s->now && way_number(meta) != number) {
			__u32 other = way_number(meta);
			struct flow_entry *entry = entry_at(other);
			struct way *flow = way_at(&flows, other);

			if (entry && flow && entry->reply == print.print && way_expiry(flow->meta) > s->now && flow->print > PRINT_BUSY)
				return false;
		}
		*(volatile __u64 *)&way->meta = way_meta(expiry, 0, number);
	} else {
		way = table_claim(&replies, params.flow_mask, params.ways, &print, s->now, &at);
		if (!way)
			return false;
		table_publish(way, print.print, way_meta(expiry, 0, number));
	}
	*print_out = print.print;
	return true;
}

static __always_inline void reply_release(__u64 print, __u32 number)
{
	struct print p = {.print = print, .place = print_place(print)};
	struct way *way;
	__u32 at;

	way = table_find(&replies, params.flow_mask, &p, &at);
	if (way && way_number(way->meta) == number)
		table_free(way, print);
}

struct reservation {
	struct flow_key reply;
	__u64 hash;
	__u64 expiry;
	__u64 print;
	__u32 number;
	__u32 nat;
	__u32 pool_first; /* of its addresses */
	__u32 pool;       /* addresses x ports */
	__u32 ports;
	__u16 first_port; /* host order */
	__u16 nat_port;
	__u8 echo;
};

/* Picks what the backend sees as the source: candidate i of the pool is
 * (hash >> 32 + i) mod pool, addresses first, at most 64 tries. */
static __noinline int reserve_pool(const struct steering *s, struct reservation *r)
{
	__u64 start = r->hash >> 32;

	for (int i = 0; i < 64; i++) {
		__u64 n = (start + i) % r->pool;
		__u32 at = r->pool_first + n / r->ports;
		__u16 port = bpf_htons(r->first_port + n % r->ports);
		const struct addr *a;

		if (i >= r->pool)
			return 0;
		a = bpf_map_lookup_elem(&snat_addresses, &at);
		if (!a)
			return 0;
		__builtin_memcpy(r->reply.dst, a->word, 16);
		r->reply.dport = r->echo ? 0 : port;
		if (reply_reserve(s, &r->reply, &r->print, r->expiry, r->number)) {
			r->nat = at + 1;
			r->nat_port = port;
			return 1;
		}
	}
	return 0;
}

/* Makes the entry of a flow that goes to c->backend, in place of any older one. */
static __noinline enum reason flow_open(const struct steering *s, struct pkt *p, const struct print *print,
					struct choice *c, __u8 flags)
{
	const struct service *service = c->service;
	const struct backend *b = c->backend;
	struct reservation r = {};
	__u32 state = state_first(p->key.proto, flags), number, target;
	struct flow_entry *entry;
	struct way *way;
	__u64 expiry;

	if (!service || !b)
		return REASON_NO_BACKEND;
	target = c->slot | (__u32)b->epoch << 16;
	expiry = expiry_after(s->now, flow_ttl(service, state, p->key.proto));
	way = table_find(&flows, params.flow_mask, print, &number);
	if (way) { /* expired, stale, or now of another backend */
		entry = entry_at(number);
		if (!entry)
			return REASON_FLOW_TABLE_FULL;
		if (entry->reply)
			reply_release(entry->reply, number);
		*(volatile __u64 *)&way->print = PRINT_BUSY;
	} else {
		way = table_claim(&flows, params.flow_mask, params.ways, print, s->now, &number);
		if (!way)
			return REASON_FLOW_TABLE_FULL;
		entry = entry_at(number);
		if (!entry)
			return REASON_FLOW_TABLE_FULL;
		if (entry->reply && service->mode == MODE_NAT)
			reply_release(entry->reply, number);
	}
	if (service->mode == MODE_NAT) {
		bool ok;

		r.expiry = expiry;
		r.number = number;
		r.echo = p->kind == KIND_ECHO;
		__builtin_memcpy(r.reply.src, b->addr, 16);
		__builtin_memcpy(r.reply.dst, p->key.src, 16);
		r.reply.sport = r.echo ? p->key.sport : b->port ?: p->key.dport;
		r.reply.dport = r.echo ? 0 : p->key.sport;
		r.reply.proto = p->key.proto;
		r.reply.pad[0] = KEY_REPLY;
		if (service->has_snat) {
			__u8 is6 = p->version == 6;

			r.pool_first = service->snat + (is6 ? service->snat4 : 0);
			r.ports = (__u32)service->snat_last - service->snat_first + 1;
			r.first_port = service->snat_first;
			r.pool = r.ports * (is6 ? service->snat6 : service->snat4);
			r.hash = siphash40((const __u64 *)&p->key);
			ok = r.pool && reserve_pool(s, &r);
		} else {
			ok = reply_reserve(s, &r.reply, &r.print, expiry, number);
		}
		if (!ok) {
			*(volatile __u64 *)&way->print = 0;
			return REASON_SNAT_EXHAUSTED;
		}
	}
	__builtin_memcpy(&entry->key, &p->key, sizeof(entry->key));
	entry->reply = r.print;
	entry->born = s->now;
	entry->nat = r.nat;
	entry->nat_port = r.nat_port;
	entry->service = service->id;
	table_publish(way, print->print, way_meta(expiry, state, target));
	c->way = way;
	c->number = number;
	c->opened = 1;
	return REASON_NONE;
}

/* Finds the flow that the packet is a reply of. */
static __always_inline bool reply_find(const struct steering *s, struct pkt *p, struct choice *c)
{
	struct print print;
	struct flow_entry *entry;
	struct way *way, *flow;
	__u32 at, number;
	__u64 meta;

	p->key.pad[0] = KEY_REPLY;
	flow_print(&p->key, &print);
	p->key.pad[0] = KEY_FLOW;
	way = table_find(&replies, params.flow_mask, &print, &at);
	if (!way || way_expiry(way->meta) <= s->now)
		return false;
	number = way_number(way->meta);
	entry = entry_at(number);
	flow = way_at(&flows, number);
	if (!entry || !flow || entry->reply != print.print || flow->print <= PRINT_BUSY)
		return false;
	meta = *(volatile __u64 *)&flow->meta;
	if (way_expiry(meta) <= s->now || !choose(s, p, c, way_slot(meta)) || c->backend->epoch != way_epoch(meta)) {
		c->backend = NULL;
		return false;
	}
	c->service = service_at(s, c->backend->service);
	c->way = flow;
	c->number = number;
	c->back = 1;
	return true;
}
