/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * conntrack.h: entries of flows and of their replies. An entry belongs to a
 * slot and its epoch: once the slot has another backend, its entries are a
 * miss. A flow's entry and its reply's expire together; expiry is written only
 * when it moves by a second or more.
 */
#pragma once

#include "flow.h"
#include "siphash.h"

/* Ports and protocol as one word. They were written as two, and a load that no
 * single store can answer waits until all stores before it are in the cache. */
static __always_inline __u64 key_end(const struct flow_key *k)
{
	const volatile __u32 *w = (const volatile __u32 *)&k->sport;

	return w[0] | (__u64)w[1] << 32;
}

static __always_inline void copy_key(struct flow_key *to, const struct flow_key *from)
{
	const __u64 *f = (const __u64 *)from;
	__u64 *t = (__u64 *)to;

#pragma unroll
	for (int i = 0; i < 4; i++)
		t[i] = f[i];
	t[4] = key_end(from);
}

/* The hash that every load balancer of the tier computes of a 40-byte form. */
static __always_inline __u64 tier_hash(const struct pkt *p, const __u64 form[5])
{
	__u32 active = p->active & 1;
	const struct generation *g = bpf_map_lookup_elem(&generations, &active);

	return g ? siphash40(g->sip, form) : 0;
}

/* The tier's hash of the packet's flow. */
__noinline __u64 flow_hash(struct pkt *p)
{
	const __u64 *w = p ? (const __u64 *)&p->key : NULL;

	if (!w)
		return 0;
	return tier_hash(p, (const __u64[5]){w[0], w[1], w[2], w[3], key_end(&p->key)});
}

static __always_inline const struct service *service_at(const struct pkt *p, __u32 id)
{
	__u32 i = (p->active & 1) * MAX_SERVICES + (id & (MAX_SERVICES - 1));

	return bpf_map_lookup_elem(&services, &i);
}

static __always_inline const struct backend *backend_at(__u32 slot, __u8 version)
{
	__u32 i = (slot << 1 | (version == 6)) & (2 * MAX_BACKENDS - 1);

	return bpf_map_lookup_elem(&backends, &i);
}

static __always_inline struct flow_entry *entry_at(__u32 number)
{
	return bpf_map_lookup_elem(&flow_entries, &number);
}

static __always_inline __u32 flow_ttl(const struct service *service, __u32 state)
{
	switch (state) {
	case FLOW_OPENING:
		return service->ttl_opening;
	case FLOW_CLOSING:
		return service->ttl_closing;
	case FLOW_ESTABLISHED:
		return service->ttl_open;
	}
	return service->ttl_udp;
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
 * service; sets number and slot. */
static __always_inline bool flow_found(struct pkt *p, const struct service *service, __u32 number)
{
	const struct backend *b;
	struct way *way;
	__u64 meta;

	p->old = number;
	if (number == NO_NUMBER)
		return false;
	way = way_at(&flows, number);
	if (!way)
		return false;
	meta = *(volatile __u64 *)&way->meta;
	if (!alive(meta, p->now))
		return false;
	b = backend_at(way_slot(meta), p->version);
	if (!b || b->epoch != way_epoch(meta) || b->service != service->id || b->state == STATE_DOWN)
		return false;
	p->number = number;
	p->slot = way_slot(meta);
	return true;
}

static __always_inline __u64 flow_print_of(struct pkt *p)
{
	return p->print = flow_print(&p->key, KEY_FLOW);
}

static __always_inline bool flow_find_here(struct pkt *p, const struct service *service)
{
	return flow_found(p, service, flows_find_here(flow_print_of(p), &p->spare));
}

static __always_inline bool flow_find(struct pkt *p, const struct service *service)
{
	return flow_found(p, service, flows_find(flow_print_of(p)));
}

/* Follows TCP and renews the entry and its reply's, one of which is at hand. */
static __always_inline void touch(struct pkt *p, const struct service *service, struct way *way, __u8 flags,
				  bool from_client)
{
	__u64 meta = *(volatile __u64 *)&way->meta, old = way_expiry(meta), fresh, moved;
	__u32 was = way_state(meta), state = state_next(was, flags, from_client);
	struct flow_entry *entry;
	struct way *other;

	fresh = expiry_after(p->now, flow_ttl(service, state));
	moved = fresh > old ? fresh - old : old - fresh;
	if (moved < params.ticks) {
		if (state == was)
			return;
		fresh = old;
	}
	/* By swaps: a way that expired now may be another flow's in the next moment. */
	if (__sync_val_compare_and_swap(&way->meta, meta, way_meta(fresh, state, way_number(meta))) != meta)
		return;
	if (service->mode != MODE_NAT)
		return;
	if (from_client) {
		entry = entry_at(p->number);
		if (!entry || !entry->reply)
			return;
		other = way_at(&replies, replies_find(entry->reply));
		if (!other)
			return;
		meta = *(volatile __u64 *)&other->meta;
		if (way_number(meta) == (p->number & 0xffffff))
			__sync_val_compare_and_swap(&other->meta, meta, way_meta(fresh, state, p->number & 0xffffff));
		return;
	}
	other = way_at(&flows, p->number);
	if (!other)
		return;
	meta = *(volatile __u64 *)&other->meta;
	__sync_val_compare_and_swap(&other->meta, meta, way_meta(fresh, state, way_number(meta)));
}

static __always_inline void flow_touch(struct pkt *p, const struct service *service, __u8 flags)
{
	struct way *way = way_at(&flows, p->number);

	if (way)
		touch(p, service, way, flags, true);
}

/* Whether a print is alive in another way too: two CPUs entered it at once. At
 * least the later one sees both. */
__noinline int replies_twice(__u64 print, __u32 at, __u64 now)
{
#pragma unroll
	for (int choice = 0; choice < CHOICES; choice++) {
		__u32 i = bucket_of(print, choice, params.flow_mask);
		struct bucket *b = bpf_map_lookup_elem(&replies, &i);
		bool room = false;

		if (!b)
			return 0;
#pragma unroll
		for (int w = 0; w < WAYS; w++) {
			__u64 found = *(volatile __u64 *)&b->way[w].print;

			if (found == print && i * WAYS + w != at && alive(b->way[w].meta, now))
				return 1;
			room |= !found;
		}
		if (room)
			return 0;
	}
	return 0;
}

/* Enters one reply key unless another live flow has it. */
static __always_inline int reply_reserve_here(struct reservation *r)
{
	struct flow_entry *own;
	__u64 print, meta;
	struct way *way;
	__u32 at;

	print = flow_print(&r->reply, KEY_REPLY);
	at = replies_find(print);
	way = way_at(&replies, at);
	if (way) {
		meta = *(volatile __u64 *)&way->meta;
		if (alive(meta, r->now) && way_number(meta) != r->number) {
			__u32 other = way_number(meta);
			struct flow_entry *entry = entry_at(other);

			if (entry && entry->reply == print)
				return 0;
		}
		/* Two CPUs may want it for two flows, or one for another key. */
		if (__sync_val_compare_and_swap(&way->print, print, PRINT_BUSY) != print)
			return 0;
		if (*(volatile __u64 *)&way->meta != meta) {
			*(volatile __u64 *)&way->print = print;
			return 0;
		}
	} else {
		at = replies_claim(print, r->now);
		way = way_at(&replies, at);
		if (!way)
			return 0;
	}
	own = entry_at(r->number);
	if (own)
		own->reply = print; /* first: whoever finds the way asks its flow */
	*(volatile __u64 *)&way->meta = way_meta(r->expiry, r->state & 3, r->number & 0xffffff);
	__sync_lock_test_and_set(&way->print, print); /* a barrier before the look at the others */
	if (replies_twice(print, at, r->now)) {
		way_publish(way, PRINT_NOBODY, 0);
		return 0;
	}
	r->print = print;
	return 1;
}

__noinline int reply_reserve(struct reservation *r) { return r ? reply_reserve_here(r) : 0; }

#define SNAT_TRIES 64

/* Picks what the backend sees as the source: candidate i of the pool is
 * (start + i) mod pool, addresses first, at most r->tries and 64. */
__noinline int reserve_pool(struct reservation *r)
{
	if (!r)
		return 0;
	for (__u32 i = 0; i < SNAT_TRIES; i++) {
		const struct addr *a;
		__u32 n, at;

		if (i >= r->tries || i >= r->pool || !r->ports)
			return 0;
		n = ((__u64)r->start + i) % r->pool;
		at = r->first + n / r->ports;
		r->nat_port = bpf_htons(r->first_port + n % r->ports);
		a = bpf_map_lookup_elem(&snat_addresses, &at);
		if (!a)
			return 0;
		__builtin_memcpy(r->reply.dst, a->word, 16);
		r->reply.dport = r->echo ? 0 : r->nat_port;
		if (reply_reserve_here(r)) {
			r->nat = at + 1;
			return 1;
		}
	}
	return 0;
}

/* The client's own port first, at the address of its hash: what a NAT before this
 * one has kept apart stays apart, so two of equal size in series fill alike. */
static __always_inline int reserve_own(struct reservation *r, __u32 sport)
{
	__u32 start = r->start;
	int ok;

	if (r->echo || sport < r->first_port || sport - r->first_port >= r->ports || !r->pool)
		return 0;
	r->start = start % r->pool / r->ports * r->ports + sport - r->first_port;
	r->tries = 1;
	ok = reserve_pool(r);
	r->start = start;
	r->tries = SNAT_TRIES;
	return ok;
}

/* Where its hash leads all is taken: 64 more, where the last flow of the service
 * that had to ends its search. So a nearly full pool is swept by those who come,
 * and no port stays unfound. */
static __always_inline int reserve_next(struct reservation *r, __u32 service)
{
	__u32 i = service & (MAX_SERVICES - 1), *next;

	if (r->pool <= SNAT_TRIES)
		return 0;
	next = bpf_map_lookup_elem(&snat_next, &i);
	if (!next)
		return 0;
	r->start = __sync_fetch_and_add(next, SNAT_TRIES);
	return reserve_pool(r);
}

__noinline int reply_release(__u64 print, __u32 number)
{
	struct way *way = way_at(&replies, replies_find(print));

	if (way && way_number(way->meta) == number)
		*(volatile __u64 *)&way->meta = number; /* expired */
	return 0;
}

/* Enters the reply key of a flow in mode NAT. Returns a reason if it cannot. */
static __always_inline int flow_reserve(struct pkt *p, struct flow_entry *entry, __u64 expiry, __u32 number, __u32 state)
{
	const struct service *service;
	const struct backend *b;
	struct reservation *r;
	int ok;

	if (!p || !entry)
		return REASON_SNAT_EXHAUSTED;
	r = &p->reservation;
	__builtin_memset(r, 0, sizeof(*r));
	service = service_at(p, p->service);
	b = backend_at(p->slot, p->version);
	if (!service || !b)
		return REASON_SNAT_EXHAUSTED;
	r->now = p->now;
	r->expiry = expiry;
	r->state = state;
	r->number = number;
	r->echo = p->kind == KIND_ECHO;
	__builtin_memcpy(r->reply.src, b->addr, 16);
	r->reply.sport = r->echo ? p->key.sport : b->port ?: p->key.dport;
	r->reply.proto = p->key.proto;
	if (service->has_snat && !p->back) { /* what its backend started keeps the client's address */
		bool is6 = p->version == 6;

		r->first = service->snat + (is6 ? service->snat4 : 0);
		r->first_port = service->snat_first;
		r->ports = (__u32)service->snat_last - service->snat_first + 1;
		r->pool = r->ports * (is6 ? service->snat6 : service->snat4);
		r->start = flow_hash(p) >> 32;
		r->tries = SNAT_TRIES;
		ok = reserve_own(r, bpf_ntohs(p->key.sport)) || reserve_pool(r) || reserve_next(r, service->id);
	} else {
		__builtin_memcpy(r->reply.dst, p->key.src, 16);
		r->reply.dport = r->echo ? 0 : p->key.sport;
		ok = reply_reserve(r);
	}
	if (!ok)
		return REASON_SNAT_EXHAUSTED;
	entry->reply = r->print;
	entry->nat = r->nat;
	entry->nat_port = r->nat_port;
	return REASON_NONE;
}

/* Makes the entry of a flow that goes to p->slot, in place of any older one. */
static __always_inline int flow_make(struct pkt *p, __u32 flags, bool here)
{
	const struct service *service;
	const struct backend *b;
	struct flow_entry *entry;
	__u32 state, number, target;
	struct way *way;
	__u64 expiry;

	service = service_at(p, p->service);
	b = backend_at(p->slot, p->version);
	if (!service || !b)
		return REASON_FLOW_TABLE_FULL;
	state = state_first(p->key.proto, flags);
	expiry = expiry_after(p->now, flow_ttl(service, state));
	number = p->old;
	if (number != NO_NUMBER) { /* expired, stale, or now of another backend */
		way = way_at(&flows, number);
		if (way && __sync_val_compare_and_swap(&way->print, p->print, PRINT_BUSY) != p->print)
			return REASON_FLOW_TABLE_FULL; /* taken this instant */
	} else {
		number = here ? table_claim(&flows, params.flow_mask, params.ways, p->print, p->now)
			      : flows_claim(p->print, p->now);
		way = way_at(&flows, number);
	}
	entry = entry_at(number);
	if (!way || !entry)
		return REASON_FLOW_TABLE_FULL;
	if (service->mode == MODE_NAT) {
		int problem;

		if (entry->reply)
			reply_release(entry->reply, number);
		problem = flow_reserve(p, entry, expiry, number, state);
		if (problem) {
			entry->reply = 0;
			/* Expired, and nobody's: another CPU may have opened the flow
			 * meanwhile, in a way that is looked at after this one. */
			way_publish(way, PRINT_NOBODY, 0);
			return problem;
		}
	} else {
		entry->reply = 0;
		entry->nat = 0;
	}
	target = p->slot | (__u32)b->epoch << 16;
	copy_key(&entry->key, &p->key);
	entry->target = target;
	entry->service = service->id;
	entry->hop = NO_NUMBER;
	way_publish(way, p->print, way_meta(expiry, state, target));
	p->number = number;
	p->opened = 1;
	return REASON_NONE;
}

/* Asks for the line of an entry that is going to be written. The way's line is
 * still on its way from memory, and a processor that has guessed where it leads
 * fetches both at once. */
static __always_inline void entry_soon(__u32 number)
{
	const struct flow_entry *entry = entry_at(number);

	if (entry)
		(void)*(volatile const __u64 *)&entry->reply;
}

/* Whether p->spare is the way that table_claim would take: expired ones in the
 * bucket before go first. */
static __always_inline bool spare_first(const struct pkt *p)
{
	__u32 i = bucket_of(p->print, 0, params.flow_mask);
	const struct bucket *b;

	if (p->spare / WAYS == i || TWICE(0, params.flow_mask))
		return true;
	b = bpf_map_lookup_elem(&flows, &i);
	if (!b)
		return false;
	barrier_var(b);
#pragma unroll
	for (int w = 0; w < WAYS; w++) {
		if (b->way[w].print != PRINT_BUSY && !alive(b->way[w].meta, p->now))
			return false;
	}
	return true;
}

/* Makes the entry of a flow to p->slot in the way p->spare, where replies are
 * not translated. False: flow_make must. */
static __always_inline bool flow_make_plain(struct pkt *p, const struct service *service, __u32 flags)
{
	const struct backend *b = backend_at(p->slot, p->version);
	struct flow_entry *entry = entry_at(p->spare);
	struct way *way = way_at(&flows, p->spare);
	__u32 state, target;

	if (!b || !entry || !way || !spare_first(p))
		return false;
	if (__sync_val_compare_and_swap(&way->print, 0, PRINT_BUSY))
		return false;
	state = state_first(p->key.proto, flags);
	target = p->slot | (__u32)b->epoch << 16;
	copy_key(&entry->key, &p->key);
	entry->reply = 0;
	entry->target = target;
	entry->nat = 0;
	entry->service = service->id;
	entry->hop = NO_NUMBER;
	way_publish(way, p->print, way_meta(expiry_after(p->now, flow_ttl(service, state)), state, target));
	p->number = p->spare;
	p->opened = 1;
	return true;
}

__noinline int flow_open(struct pkt *p, __u32 flags)
{
	return p ? flow_make(p, flags, false) : REASON_FLOW_TABLE_FULL;
}

/* Whether an address may be that of a backend in mode NAT. */
static __always_inline bool maybe_inside(const struct generation *g, const __u32 addr[4])
{
	__u64 a = (__u64)addr[1] << 32 | addr[0], b = (__u64)addr[3] << 32 | addr[2];
	__u32 bit = (a * g->mult[0] ^ b * g->mult[1]) >> 52;

	return g->inside[bit / 64 & (INSIDE_WORDS - 1)] >> (bit & 63) & 1;
}

#define REPLY_UNKNOWN NO_NUMBER /* from a backend's address, and no reply */

/* Finds the flow that the packet is a reply of; sets service, number, slot.
 * Returns the number of the reply's way + 1, or 0, or REPLY_UNKNOWN. */
static __always_inline __u32 reply_find_here(struct pkt *p)
{
	const struct generation *g;
	struct flow_entry *entry;
	const struct backend *b;
	__u32 number, found, active;
	struct way *way;
	__u64 print;

	active = p->active & 1;
	g = bpf_map_lookup_elem(&generations, &active);
	if (!g || !maybe_inside(g, p->key.src))
		return 0;
	print = flow_print(&p->key, KEY_REPLY);
	found = replies_find_here(print);
	if (found == NO_NUMBER)
		return REPLY_UNKNOWN;
	way = way_at(&replies, found);
	if (!way || !alive(way->meta, p->now))
		return REPLY_UNKNOWN;
	number = way_number(way->meta);
	entry = entry_at(number);
	if (!entry || entry->reply != print)
		return REPLY_UNKNOWN;
	b = backend_at(entry->target & 0xffff, p->version);
	if (!b || b->epoch != (__u8)(entry->target >> 16))
		return REPLY_UNKNOWN;
	p->service = b->service;
	p->slot = entry->target & 0xffff;
	p->number = number;
	p->back = 1;
	return found + 1;
}

__noinline __u32 reply_find(struct pkt *p)
{
	__u32 found = p ? reply_find_here(p) : 0;

	return found == REPLY_UNKNOWN ? 0 : found;
}
