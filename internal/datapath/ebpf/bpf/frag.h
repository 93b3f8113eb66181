/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * frag.h: fragments follow the first one of their datagram. One that comes
 * before it goes to user space, bounded in number; when the first one comes,
 * user space sends the others through the program again. In mode NAT the
 * datagram is also known under the addresses it leaves with, for ICMP errors
 * that quote one of its later fragments.
 *
 * An entry is known once the first fragment was seen; that it waits for it, or
 * that its datagram is lost, says meta_state. In a full table (the three buckets
 * of an entry hold live ones only) there is room for
 *  - a first fragment always: lost entries are evicted first, then waiting ones,
 *    then names that datagrams left with, then known ones, of each the oldest.
 *    Fragments in order need their entry for microseconds;
 *  - the name that a datagram leaves with: in place of anything but a known one;
 *  - a later fragment without an entry: in place of a lost or waiting one.
 *    Otherwise it is dropped and leaves no entry.
 * Evictions are counted in fragment_evictions.
 *
 * The fragments of one datagram may be on several CPUs at once, and user space
 * on another. A first fragment publishes its entry, and requests the waiting ones
 * after that, whether it saw them counted or not. User space looks at the entry
 * when it takes a fragment in: what is not known by then is released later. Where
 * two CPUs entered the datagram at once, a later fragment goes by the first one's
 * entry, and a first fragment makes the later one's a known one too.
 */
#pragma once

#include "conntrack.h"
#include "hold.h"
#include "vip.h"

/* Fills in the rewrite of a packet whose choice is made. */
static __always_inline int rewrite_for(struct pkt *p)
{
	struct flow_entry *entry;
	const struct backend *b;

	if (p->back) {
		entry = entry_at(p->number);
		if (!entry)
			return 0;
		__builtin_memcpy(p->nat.src, entry->key.dst, 16);
		p->nat.sport = entry->key.dport;
		p->nat.set_src = 1;
		if (entry->nat) {
			__builtin_memcpy(p->nat.dst, entry->key.src, 16);
			p->nat.dport = entry->key.sport;
			p->nat.set_dst = 1;
		}
		return 0;
	}
	b = backend_at(p->slot, p->version);
	if (!b)
		return 0;
	__builtin_memcpy(p->nat.dst, b->addr, 16);
	p->nat.dport = b->port;
	p->nat.set_dst = 1;
	const struct service *service = service_at(p, p->service);

	if (!service || !service->has_snat)
		return 0;
	entry = entry_at(p->number);
	if (entry && entry->nat) {
		__u32 at = entry->nat - 1;
		const struct addr *a = bpf_map_lookup_elem(&snat_addresses, &at);

		if (!a)
			return 0;
		__builtin_memcpy(p->nat.src, a->word, 16);
		p->nat.sport = entry->nat_port;
		p->nat.set_src = 1;
	}
	return 0;
}

/* The key of the packet's own datagram, or of the one that an ICMP error quotes.
 * In IPv6 the next header is no part of it (RFC 8200 section 4.5). */
static __always_inline void fragment_key(ctx_t *ctx, const struct pkt *p, struct flow_key *k)
{
	__builtin_memset(k, 0, sizeof(*k));
	if (p->quote_later) {
		__builtin_memcpy(k->src, p->key.dst, 16);
		__builtin_memcpy(k->dst, p->key.src, 16);
	} else if (p->kind == KIND_ICMP_ERROR) {
		if (p->version == 4) {
			k->src[2] = k->dst[2] = MAPPED;
			ctx_load(ctx, p->l3 + 12, &k->src[3], 4);
			ctx_load(ctx, p->l3 + 16, &k->dst[3], 4);
		} else {
			ctx_load(ctx, p->l3 + 8, k->src, 16);
			ctx_load(ctx, p->l3 + 24, k->dst, 16);
		}
	} else {
		__builtin_memcpy(k->src, p->key.src, 16);
		__builtin_memcpy(k->dst, p->key.dst, 16);
	}
	if (p->version == 4)
		k->proto = p->quote_later ? p->key.proto : p->proto;
	k->sport = p->id >> 16;
	k->dport = p->id;
}

static __always_inline struct fragment_entry *fragment_at(__u32 number)
{
	return bpf_map_lookup_elem(&fragment_entries, &number);
}

static __always_inline void held_add(__u32 n)
{
	struct control *control = (struct control *)control_of();

	if (control)
		__sync_fetch_and_add(&control->held, n);
}

/* Slot states of the fragment table. Those of higher rank are evicted first. */
enum fragment_rank { RANK_KNOWN, RANK_LEFT, RANK_WAITING, RANK_LOST, RANKS };

MAP(PERCPU_ARRAY, fragment_evictions, __u32, __u64, RANKS, 0);

/* Evicts an entry of this rank or a higher one for a fingerprint that finds no room:
 * of the highest rank the oldest. The caller publishes the slot as after a claim. */
__noinline __u32 fragments_evict(__u64 fingerprint, __u32 rank)
{
	__u64 best = ~0ull, victim = 0, *evictions;
	__u32 number = NO_NUMBER;
	struct fragment_entry *e;
	struct table_slot *slot;

#pragma unroll
	for (int choice = 0; choice < CHOICES; choice++) {
		__u32 i = bucket_of(fingerprint, choice, params.fragment_mask);
		struct bucket *b;

		if (TWICE(choice, params.fragment_mask))
			continue;
		b = bpf_map_lookup_elem(&fragments, &i);
		if (!b)
			return NO_NUMBER;
#pragma unroll
		for (int w = 0; w < BUCKET_SLOTS; w++) {
			__u64 found = *(volatile __u64 *)&b->slots[w].fingerprint, meta = *(volatile __u64 *)&b->slots[w].meta, age;

			if (w >= params.fragment_slots || found == FINGERPRINT_BUSY || meta_state(meta) < rank)
				continue;
			age = (__u64)(RANKS - meta_state(meta)) << EXPIRY_BITS | meta_expiry(meta);
			if (age < best) {
				best = age;
				victim = found;
				number = i * BUCKET_SLOTS + w;
			}
		}
	}
	slot = table_at(&fragments, number);
	e = fragment_at(number);
	if (!slot || !e || __sync_val_compare_and_swap(&slot->fingerprint, victim, FINGERPRINT_BUSY) != victim)
		return NO_NUMBER;
	rank = meta_state(slot->meta);
	if (rank == RANK_WAITING)
		held_add(-(__u32)e->held);
	evictions = bpf_map_lookup_elem(&fragment_evictions, &rank);
	if (evictions)
		(*evictions)++;
	return number;
}

/* The slot of a fingerprint that has none yet. */
static __always_inline __u32 fragments_enter(__u64 fingerprint, __u64 now, __u32 rank)
{
	__u32 number = fragments_claim(fingerprint, now);

	return number == NO_NUMBER ? fragments_evict(fingerprint, rank) : number;
}

/* A datagram that a later fragment entered in the same moment, elsewhere in the
 * table, is known from now on. Returns whether there is one. */
__noinline int fragment_known_duplicate(__u64 fingerprint, __u32 at, struct fragment_entry *value, __u64 now)
{
	__u32 number = fragment_duplicate(fingerprint, at, now);
	struct table_slot *slot = table_at(&fragments, number);
	struct fragment_entry *e = fragment_at(number);

	if (!slot || !e || !value || *(volatile __u8 *)&e->kind != FRAGMENT_WAITING)
		return 0;
	if (__sync_val_compare_and_swap(&slot->fingerprint, fingerprint, FINGERPRINT_BUSY) != fingerprint)
		return 0; /* given up */
	held_add(-(__u32)e->held);
	*e = *value;
	table_publish(slot, fingerprint, meta_of(expiry_after(now, params.fragment_ttl), RANK_KNOWN, 0));
	return 1;
}

/* Records a first fragment. Returns the reason to drop it: full, or the
 * datagram is lost already. */
__noinline int fragment_record(struct flow_key *k, struct fragment_entry *value, __u64 now, __u32 domain)
{
	__u32 number, own = domain == KEY_DATAGRAM ? RANK_KNOWN : RANK_LEFT;
	struct fragment_entry *e;
	bool fresh, waited = false;
	struct table_slot *slot;
	__u64 fingerprint, meta;

	if (!k || !value)
		return REASON_FRAGMENT_TABLE_FULL;
	fingerprint = flow_fingerprint(k, domain);
	number = fragments_find(fingerprint);
	slot = table_at(&fragments, number);
	meta = slot ? *(volatile __u64 *)&slot->meta : 0;
	fresh = !slot || !alive(meta, now);
	if (fresh && (!slot || !table_take(slot, fingerprint, meta))) {
		number = fragments_enter(fingerprint, now, own);
		slot = table_at(&fragments, number);
	}
	e = fragment_at(number);
	if (!slot || !e)
		return REASON_FRAGMENT_TABLE_FULL;
	if (params.front && !fresh && e->kind == FRAGMENT_WAITING) {
		/* Its other fragments wait in the queue, and so it must go there. */
		table_publish(slot, fingerprint, meta_of(expiry_after(now, params.fragment_ttl), RANK_WAITING, 0));
		return REASON_NOT_STEERED;
	}
	if (!fresh) {
		if (e->kind == FRAGMENT_LOST)
			return REASON_HOLD_FULL;
		waited = e->kind == FRAGMENT_WAITING;
		if (waited)
			held_add(-(__u32)e->held);
	}
	*e = *value;
	table_publish_first(slot, fingerprint, meta_of(expiry_after(now, params.fragment_ttl), own, 0));
	if (params.hold && own == RANK_KNOWN) {
		if (fresh || waited)
			waited |= fragment_known_duplicate(fingerprint, number, value, now);
		if (waited)
			hold_release(now, k);
	}
	return REASON_NONE;
}

/* Remembers the decision on a first fragment. */
__noinline int fragment_first(ctx_t *ctx, struct pkt *p, __u32 reason)
{
	struct fragment_entry e = {};
	const struct backend *b;
	struct flow_key k;
	struct table_slot *slot;
	int problem;

	if (!p)
		return reason;
	fragment_key(ctx, p, &k);
	if (reason == REASON_NOT_SERVICE && !bpf_map_lookup_elem(&nat_backends, k.src) && !vip_covers(p, k.dst))
		return reason; /* its later fragments will not be looked up either */
	e.kind = FRAGMENT_DECIDED;
	e.reason = reason;
	b = p->slot == NO_SLOT ? NULL : backend_at(p->slot, p->version);
	if (b) {
		e.kind = FRAGMENT_FORWARD;
		e.target = p->slot | (__u32)b->epoch << 16;
		e.service = p->service;
		e.back = p->back;
		if (p->mode == MODE_NAT) {
			e.nat = 1;
			e.number = p->number;
			slot = table_at(&flows, p->number);
			e.flow = slot ? slot->fingerprint : 0;
		}
	}
	problem = fragment_record(&k, &e, p->now, KEY_DATAGRAM);
	if (problem && reason >= REASON_FRAGMENT && reason < REASON_FRAGMENT_EARLY) {
		p->slot = NO_SLOT;
		return problem;
	}
	if (e.nat) {
		if (p->nat.set_src)
			__builtin_memcpy(k.src, p->nat.src, 16);
		if (p->nat.set_dst)
			__builtin_memcpy(k.dst, p->nat.dst, 16);
		fragment_record(&k, &e, p->now, KEY_LEFT);
	}
	return reason;
}

/* Repeats a first fragment's decision. */
static __always_inline int fragment_follow(struct pkt *p, const struct fragment_entry *e, int reason)
{
	const struct service *service;
	const struct backend *b;
	struct table_slot *slot;
	__u64 meta;

	b = backend_at(e->target & 0xffff, p->version);
	if (!b || b->epoch != (__u8)(e->target >> 16) || b->state == STATE_DOWN)
		return REASON_FRAGMENT_UNKNOWN;
	p->service = b->service;
	service = service_at(p, p->service);
	if (!service)
		return REASON_FRAGMENT_UNKNOWN;
	p->mode = service->mode;
	if (service->mode == MODE_NAT) {
		slot = table_at(&flows, e->number);
		if (!slot || slot->fingerprint != e->flow)
			return REASON_FRAGMENT_UNKNOWN;
		meta = *(volatile __u64 *)&slot->meta;
		if (!alive(meta, p->now) || meta_number(meta) != (e->target & 0xffffff))
			return REASON_FRAGMENT_UNKNOWN;
		p->number = e->number;
	}
	p->slot = e->target & 0xffff;
	return reason;
}

/* Drops a fragment to a VIP. A backend's traffic to elsewhere, which may not
 * concern us at all, passes. */
static __always_inline int fragment_unknown(bool to_vip, int reason)
{
	return to_vip ? reason : REASON_NOT_SERVICE;
}

/* Enters a datagram whose first fragment was not seen, in place of its expired
 * entry if it has one. Returns the number, of the first fragment's entry if that
 * came in the same moment; NO_NUMBER: no room. */
static __always_inline __u32 fragment_wait(__u64 fingerprint, __u64 now, __u32 number)
{
	struct table_slot *slot = table_at(&fragments, number);
	__u64 meta = slot ? *(volatile __u64 *)&slot->meta : 0;
	struct fragment_entry *e;
	__u32 other;

	if (slot && alive(meta, now) && *(volatile __u64 *)&slot->fingerprint == fingerprint)
		return number; /* another CPU was faster */
	if (!slot || alive(meta, now) || !table_take(slot, fingerprint, meta))
		number = fragments_enter(fingerprint, now, RANK_WAITING);
	slot = table_at(&fragments, number);
	e = fragment_at(number);
	if (!slot || !e)
		return NO_NUMBER;
	__builtin_memset(e, 0, sizeof(*e));
	e->kind = FRAGMENT_WAITING;
	table_publish_first(slot, fingerprint, meta_of(expiry_after(now, params.fragment_ttl), RANK_WAITING, 0));
	other = fragment_duplicate(fingerprint, number, now);
	e = fragment_at(other);
	if (!e || *(volatile __u8 *)&e->kind >= FRAGMENT_WAITING)
		return number;
	if (__sync_val_compare_and_swap(&slot->fingerprint, fingerprint, FINGERPRINT_BUSY) == fingerprint)
		table_publish(slot, FINGERPRINT_NOBODY, 0);
	return other;
}

/* Gives a fragment that came before the first one to user space. Returns what
 * became of its datagram. */
static __always_inline __u8 fragment_hold(ctx_t *ctx, struct pkt *p, struct flow_key *k, struct fragment_entry *e, __u32 number)
{
	const struct control *control = control_of();
	__u32 *state = (__u32 *)&e->kind, was = *(volatile __u32 *)state;

	if (params.front)
		return FRAGMENT_WAITING;
	if (control && control->held < params.hold && e->held < params.hold_each && hold(ctx, p, k, number)) {
		held_add(1);
		e->held++; /* in vain where the first one has come meanwhile; sweep counts held again */
		return FRAGMENT_WAITING;
	}
	if ((__u8)was == FRAGMENT_WAITING && __sync_val_compare_and_swap(state, was, FRAGMENT_LOST) == was)
		held_add(-(was >> 24));
	return FRAGMENT_LOST;
}

/* Steers a fragment that is not the first of its datagram. */
__noinline int fragment_later(ctx_t *ctx, struct pkt *p)
{
	struct fragment_entry *e, seen;
	__u32 number, rank = RANK_KNOWN;
	struct flow_key k;
	struct table_slot *slot;
	__u64 fingerprint, meta, renewed;
	bool to_vip;
	__u8 kind;

	if (!p)
		return REASON_NOT_SERVICE;
	fragment_key(ctx, p, &k);
	to_vip = vip_covers(p, k.dst);
	if (!to_vip && !bpf_map_lookup_elem(&nat_backends, k.src))
		return REASON_NOT_SERVICE;
	fingerprint = flow_fingerprint(&k, KEY_DATAGRAM);
	number = fragments_find(fingerprint);
	slot = table_at(&fragments, number);
	if (!slot || !alive(slot->meta, p->now)) {
		if (!params.hold && !params.front)
			return fragment_unknown(to_vip, REASON_FRAGMENT_UNKNOWN);
		number = fragment_wait(fingerprint, p->now, number);
		slot = table_at(&fragments, number);
	}
	e = fragment_at(number);
	if (!slot || !e)
		return fragment_unknown(to_vip, REASON_HOLD_FULL);
	meta = *(volatile __u64 *)&slot->meta;
	kind = *(volatile __u8 *)&e->kind; /* first: it is written last */
	barrier();
	seen = *e;
	if (kind == FRAGMENT_WAITING) {
		rank = RANK_WAITING;
		kind = fragment_hold(ctx, p, &k, e, number);
	}
	if (kind == FRAGMENT_LOST)
		rank = RANK_LOST;
	renewed = meta_of(expiry_after(p->now, params.fragment_ttl), rank, 0);
	if (renewed != meta) /* by a swap: another CPU may have evicted it */
		__sync_val_compare_and_swap(&slot->meta, meta, renewed);
	if (kind == FRAGMENT_WAITING)
		return REASON_FRAGMENT_EARLY;
	if (*(volatile __u64 *)&slot->fingerprint != fingerprint)
		return fragment_unknown(to_vip, REASON_FRAGMENT_UNKNOWN);
	switch (kind) {
	case FRAGMENT_LOST:
		return fragment_unknown(to_vip, REASON_HOLD_FULL);
	case FRAGMENT_DECIDED:
		return seen.reason;
	}
	p->back = seen.back;
	return fragment_follow(p, &seen, REASON_FRAGMENT);
}

/* An ICMP error that quotes a later fragment of a datagram that left us.
 * REASON_NONE: no such datagram. */
static __always_inline int fragment_quoted(ctx_t *ctx, struct pkt *p)
{
	struct fragment_entry *e;
	struct flow_key k;
	struct table_slot *slot;
	__u32 number;

	if (!p || !same_address(p->dst, p->key.dst))
		return REASON_NONE;
	fragment_key(ctx, p, &k);
	number = fragments_find(flow_fingerprint(&k, KEY_LEFT));
	slot = table_at(&fragments, number);
	e = fragment_at(number);
	if (!slot || !alive(slot->meta, p->now) || !e || e->kind != FRAGMENT_FORWARD)
		return REASON_NONE;
	p->back = !e->back;
	return fragment_follow(p, e, p->back ? REASON_ICMP_REPLY : REASON_ICMP_ERROR);
}
