/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * conntrack.h: entries of flows and of their replies. An entry belongs to a
 * slot and its epoch: once the slot has another backend, its entries are a
 * miss. A flow's entry and its reply's expire together; expiry is written only
 * when it moves by a second or more.
 *
 * In a full table an unproven flow makes room for a new one (flow.h), with its
 * reply; in full replies, with its flow. A proven one makes room only for a packet
 * of its service whose connection id names a live owner, in mode NAT: the one that
 * expires next. eviction_counts has both. An unproven flow also gives up its source
 * port, and ends, for a new one that found none free.
 *
 * A flow that makes room may have a packet in hand on another CPU. Whoever ends a
 * flow changes its meta first, by a swap that shows it unproven to the last; then
 * its fingerprint, its entry's reply, the rest of the entry, and at last meta and fingerprint
 * again (table_publish). Whoever uses an entry looks at fingerprint or reply again after
 * what it reads there (flow_found, touch_write, rewrite_stands).
 */
#pragma once

#include "checked.h"
#include "credit.h"
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

#define NO_TARGET NO_NUMBER /* of an entry that is being made; with slot and epoch it has no bits so high */

static __always_inline struct flow_entry *entry_at(__u32 number)
{
	return bpf_map_lookup_elem(&flow_entries, &number);
}

/* Whether flags begin a connection. On the ports of a closed one that is a new
 * connection (RFC 9293 section 3.6.1). */
static __always_inline bool opens(__u8 flags)
{
	return (flags & (FLAG_SYN | FLAG_ACK | FLAG_FIN | FLAG_RST)) == FLAG_SYN;
}

/* Whether flags are those of the answer to that. */
static __always_inline bool answers(__u8 flags)
{
	return (flags & (FLAG_SYN | FLAG_ACK | FLAG_FIN | FLAG_RST)) == (FLAG_SYN | FLAG_ACK);
}

/* A SYN on an established connection changes nothing: its backend answers it with a
 * challenge (RFC 5961 section 4), and if the client has forgotten the connection it
 * resets it then. */
static __always_inline __u32 state_next(__u32 state, __u8 flags, bool from_client)
{
	if (state == FLOW_PLAIN)
		return state;
	if (flags & (FLAG_FIN | FLAG_RST))
		return FLOW_CLOSING;
	if (state == FLOW_CLOSING && from_client && opens(flags))
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
	struct table_slot *slot;
	__u64 meta;

	p->old = number;
	if (number == NO_NUMBER)
		return false;
	slot = table_at(&flows, number);
	if (!slot)
		return false;
	meta = *(volatile __u64 *)&slot->meta;
	if (*(volatile __u64 *)&slot->fingerprint != p->fingerprint) /* made room between two looks */
		return false;
	if (!alive(meta, p->now))
		return false;
	b = backend_at(meta_backend(meta), p->version);
	if (!b || b->epoch != meta_epoch(meta) || b->service != service->id || b->state == STATE_DOWN)
		return false;
	p->number = number;
	p->slot = meta_backend(meta);
	return true;
}

static __always_inline __u64 flow_fingerprint_of(struct pkt *p)
{
	return p->fingerprint = flow_fingerprint(&p->key, KEY_FLOW);
}

/* The same in line, after flow_fingerprint_of. */
static __always_inline bool flow_find_here(struct pkt *p, const struct service *service)
{
	return flow_found(p, service, flows_find_here(p->fingerprint, &p->spare));
}

static __always_inline bool flow_find(struct pkt *p, const struct service *service)
{
	return flow_found(p, service, flows_find(flow_fingerprint_of(p)));
}

/* Whether a slot keeps FLOW_PROVEN from one state to the next. In a handshake it only
 * says that the backend answered; one that is closed or begins again proves nothing. */
static __always_inline bool keeps_proof(__u32 was, __u32 state)
{
	return was == FLOW_OPENING ? state != FLOW_CLOSING : state != FLOW_OPENING;
}

/* The state after a packet, with FLOW_PROVEN where it proves the flow. Where
 * replies are seen (mode NAT) the backend's first reply does; of TCP it is noted in
 * both slots (FLOW_PROVEN of a handshake says that the backend answered), and the
 * client's acknowledgement after it proves the flow (touch_write). Elsewhere the
 * client's second packet does, of TCP the one that leaves it established. A SYN-ACK
 * on a closed handshake opens it again: a client whose port had another connection
 * resets that when its late SYN-ACK arrives, and then gets its own. */
static __always_inline __u32 progress_next(__u32 was, bool nat, __u8 flags, bool from_client)
{
	__u32 state = state_next(was & 3, flags, from_client);

	if (was == FLOW_CLOSING && !from_client && answers(flags))
		return FLOW_OPENING | FLOW_PROVEN;
	if (!keeps_proof(was & 3, state))
		return state;
	if (from_client)
		return state | (was & FLOW_PROVEN) | (nat || state & 1 ? 0 : FLOW_PROVEN);
	return state | (was & FLOW_PROVEN) | (state == FLOW_CLOSING ? 0 : FLOW_PROVEN);
}

_Static_assert(!(FLOW_PLAIN & 1) && FLOW_OPENING & 1 && !(FLOW_ESTABLISHED & 1) && FLOW_CLOSING & 1, "odd states prove nothing");

enum { TOUCH_TRIES = 4 };

/* The backend answers a handshake: notes that in the flow's meta before the answer is
 * forwarded; next is that of its reply. Whoever ends a flow swaps its meta, so it has
 * seen the note, or the flow has ended before: false, and the answer is dropped. Its
 * client would assume that it has a connection. */
static __always_inline bool answer_noted(const struct pkt *p, __u64 next)
{
	const struct flow_entry *entry = entry_at(p->number);
	struct table_slot *flow = table_at(&flows, p->number);

	if (!entry || !flow)
		return false;
	for (int i = 0; i < TOUCH_TRIES; i++) {
		__u64 meta = *(volatile __u64 *)&flow->meta;

		if (*(volatile __u64 *)&entry->reply != p->fingerprint || !alive(meta, p->now))
			return false;
		if (meta_answered(meta) || !(meta_state(meta) & 1))
			return true;
		if (__sync_val_compare_and_swap(&flow->meta, meta, meta_of(meta_expiry(next), meta_progress(next), meta_number(meta))) == meta)
			return true;
	}
	return false;
}

/* Writes a slot that touch has read as seen, and in mode NAT the other slot of the
 * flow. By swaps, each after a look at whose the slot is: one that expired or made
 * room now may be another flow's in the next moment. */
__noinline int touch_write(struct pkt *p, __u32 at, __u32 from_client)
{
	volatile struct touched *t;
	struct flow_entry *entry = NULL;
	struct table_slot *slot, *other = NULL;
	__u64 meta, want;
	bool own, turns;

	if (!p)
		return 0;
	t = &p->touched;
	if (!from_client && meta_state(t->next) == FLOW_OPENING && !meta_answered(t->seen) && !answer_noted(p, t->next)) {
		p->fingerprint = FINGERPRINT_BUSY; /* no flow has it: rewrite_stands drops the answer */
		return 0;
	}
	slot = from_client ? table_at(&flows, at) : table_at(&replies, at);
	if (!slot || *(volatile __u64 *)&slot->fingerprint != p->fingerprint)
		return 0;
	t->denied = 0;
	if (p->mode == MODE_NAT) {
		entry = entry_at(p->number);
		if (!entry)
			return 0;
		t->fingerprint = *(volatile __u64 *)&entry->reply;
		t->other = from_client ? t->fingerprint ? replies_find(t->fingerprint) : NO_NUMBER : p->number;
		other = from_client ? table_at(&replies, t->other) : table_at(&flows, t->other);
	}
	if (other && from_client && meta_state(t->next) == FLOW_ESTABLISHED && p->tcp_flags & FLAG_ACK)
		t->next |= *(volatile __u64 *)&other->meta & (__u64)FLOW_PROVEN << 24;
	turns = meta_proven(t->next) && !meta_proven(t->seen) && (from_client || meta_state(t->next) == FLOW_PLAIN);
	if (t->next == t->seen)
		return 0;
	if (turns && !(from_client ? flows_may_prove(at, p->now) && (!other || replies_may_prove(t->other, p->now))
				   : replies_may_prove(at, p->now) && flows_may_prove(t->other, p->now))) {
		t->next &= ~((__u64)FLOW_PROVEN << 24);
		t->denied = from_client; /* the reply's slot still says that the backend answered */
		if (t->next == t->seen)
			return 0;
	}
	for (int i = 0; i < TOUCH_TRIES; i++) {
		__u64 seen = t->seen;

		meta = __sync_val_compare_and_swap(&slot->meta, seen, t->next);
		if (meta == seen)
			break;
		/* The other direction renewed it meanwhile. Else it has ended, is another flow's by now, or another packet took it further. */
		if (i == TOUCH_TRIES - 1 || !alive(meta, p->now) || meta_number(meta) != meta_number(seen) ||
		    meta_state(meta) != meta_state(seen) || *(volatile __u64 *)&slot->fingerprint != p->fingerprint)
			return 0;
		if (keeps_proof(meta_state(seen), meta_state(t->next)))
			t->next |= meta & ~seen & (__u64)FLOW_PROVEN << 24;
		t->seen = meta;
	}
	if (!other)
		return 0;
	for (int i = 0; i < TOUCH_TRIES; i++) {
		__u64 next = t->next, seen = t->seen;
		__u32 state, proof;

		meta = *(volatile __u64 *)&other->meta;
		if (*(volatile __u64 *)&entry->reply != t->fingerprint || !alive(meta, p->now))
			return 0;
		if (from_client ? meta_number(meta) != (p->number & 0xffffff) || *(volatile __u64 *)&other->fingerprint != t->fingerprint
				: t->fingerprint != p->fingerprint)
			return 0;
		own = from_client ? t->denied || (meta_state(seen) == FLOW_OPENING && meta_state(next) == FLOW_OPENING)
				  : meta_state(next) != FLOW_PLAIN;
		/* What came from the other side in this moment may have taken the connection further: the state never goes back. */
		state = meta_state(meta) == meta_state(t->first) ? meta_state(next) : state_next(meta_state(meta), p->tcp_flags, from_client);
		proof = own && !keeps_proof(meta_state(meta), state) ? 0 : meta_progress(own ? meta : next) & FLOW_PROVEN;
		want = meta_of(state == meta_state(next) ? meta_expiry(next) : meta_expiry(meta), state | proof, meta_number(meta));
		if (want == meta || __sync_val_compare_and_swap(&other->meta, meta, want) == meta)
			return 0;
	}
	return 0;
}

/* Follows TCP and renews the entry and its reply's, one of which is at hand; with
 * the first SYN-ACK of a handshake exactly (see holder_rank). */
static __always_inline void touch(struct pkt *p, const struct service *service, struct table_slot *slot, __u32 at, __u8 flags,
				  bool from_client)
{
	__u64 meta = *(volatile __u64 *)&slot->meta, old = meta_expiry(meta), fresh, moved;
	__u32 was = meta_progress(meta), is = progress_next(was, service->mode == MODE_NAT, flags, from_client);

	if (!alive(meta, p->now)) /* it has ended since it was found */
		return;
	fresh = expiry_after(p->now, flow_ttl(service, is & 3));
	moved = fresh > old ? fresh - old : old - fresh;
	if (moved < params.ticks) {
		if (is == was && !(from_client && is == FLOW_ESTABLISHED))
			return;
		if (is == was || from_client || (is & 3) != FLOW_OPENING)
			fresh = old;
	}
	p->mode = service->mode;
	p->touched.first = p->touched.seen = meta;
	p->touched.next = meta_of(fresh, is, meta_number(meta));
	touch_write(p, at, from_client);
}

static __always_inline void flow_touch(struct pkt *p, const struct service *service, __u8 flags)
{
	struct table_slot *slot = table_at(&flows, p->number);

	if (slot)
		touch(p, service, slot, p->number, flags, true);
}

/* Whether a fingerprint is alive in another slot too: two CPUs entered it at once. At
 * least the later one sees both. */
__noinline int reply_duplicated(__u64 fingerprint, __u32 at, __u64 now)
{
	return table_duplicate(&replies, params.flow_mask, fingerprint, at, now) != NO_NUMBER;
}

/* Counts a live entry that made room. */
static __always_inline void count_evicted(__u64 meta)
{
	__u32 zero = 0;
	struct eviction_count *n = bpf_map_lookup_elem(&eviction_counts, &zero);

	if (!n)
		return;
	if (meta_proven(meta))
		n->displaced++;
	else
		n->evicted++;
}

enum { EVICT_TRIES = 3, EVICT_AGAIN = NO_NUMBER - 1 };

__noinline __u32 flow_evict_once(struct pkt *p)
{
	const struct service *service = p ? service_at(p, p->service) : NULL;
	const struct flow_entry *entry;
	struct victim *v;
	struct table_slot *slot;
	__u64 meta;

	if (!service)
		return NO_NUMBER;
	v = &p->reservation.victim;
	table_victim(&flows, p->fingerprint, p->owned, service, v);
	slot = table_at(&flows, v->number);
	entry = entry_at(v->number);
	if (!slot || !entry || (meta_proven(v->meta) && entry->service != service->id))
		return NO_NUMBER;
	meta = meta_ended(v->meta, p->now);
	if (__sync_val_compare_and_swap(&slot->meta, v->meta, meta) != v->meta)
		return EVICT_AGAIN;
	if (alive(v->meta, p->now))
		count_evicted(v->meta);
	return table_take(slot, v->fingerprint, meta) ? v->number : EVICT_AGAIN;
}

/* Takes the slot of a flow that makes room for p's, where table_claim found none.
 * The flow ends first, by a swap that fails if it has proven itself meanwhile;
 * then its slot is like any that expired. */
static __always_inline __u32 flow_evict(struct pkt *p)
{
	for (int i = 0; i < EVICT_TRIES; i++) {
		__u32 number = flow_evict_once(p);

		if (number != EVICT_AGAIN)
			return number;
	}
	return NO_NUMBER;
}

/* Whoever releases a reply writes that into its flow's entry and then looks for it. Whoever gives its slot back
 * makes it visible and then looks at the entry. So one of them frees it. */
__noinline int reply_restored(__u32 at, __u64 fingerprint)
{
	struct table_slot *slot = table_at(&replies, at);

	for (int i = 0; slot && i < TOUCH_TRIES; i++) {
		struct flow_entry *entry = entry_at(meta_number(*(volatile __u64 *)&slot->meta));

		if (!entry || fingerprint <= FINGERPRINT_NOBODY || *(volatile __u64 *)&entry->reply == fingerprint)
			return 0;
		if (__sync_val_compare_and_swap(&slot->fingerprint, fingerprint, FINGERPRINT_BUSY) != fingerprint)
			return 0;
		entry = entry_at(meta_number(*(volatile __u64 *)&slot->meta)); /* the same until the slot is visible again */
		if (entry && *(volatile __u64 *)&entry->reply != fingerprint) {
			table_publish(slot, FINGERPRINT_NOBODY, 0);
			return 0;
		}
		__sync_lock_test_and_set(&slot->fingerprint, fingerprint);
	}
	return 0;
}

/* Claims the slot of a reply. Packets in hand may have renewed it since fingerprint and
 * meta were read, each of another CPU. */
static __always_inline bool reply_take(__u32 at, __u64 fingerprint, __u64 meta)
{
	struct table_slot *slot = table_at(&replies, at);
	__u32 number = meta_number(meta);

	for (int i = 0; slot && i < TOUCH_TRIES; i++) {
		if (table_take(slot, fingerprint, meta))
			return true;
		reply_restored(at, fingerprint);
		meta = *(volatile __u64 *)&slot->meta;
		if (meta_number(meta) != number)
			return false;
	}
	return false;
}

/* After r's flow took the slot of a reply from the flow number: that flow has ended, but
 * another CPU may have made it again in the same moment, with a reply that looks the same
 * in the same slot. It then ends once more, here or where it is made (reply_kept): each
 * side writes first and then looks. One that found another slot for its reply ends too;
 * the next flow in its slot frees that. 0: it is proven by now and keeps its reply. */
__noinline int reply_taken(struct reservation *r, __u32 number, __u64 fingerprint)
{
	struct flow_entry *entry = entry_at(number);
	struct table_slot *flow = table_at(&flows, number);
	__u64 meta;

	if (!r || !entry || !flow)
		return 1;
	/* A swap fails if the flow has been proven, or has ended and makes room: the latter finds no reply to release while this one is taken. */
	for (int i = 0; i < TOUCH_TRIES; i++) {
		if (*(volatile __u64 *)&flow->fingerprint == FINGERPRINT_BUSY) /* being made */
			return 1;
		meta = *(volatile __u64 *)&flow->meta;
		if (!alive(meta, r->now) || *(volatile __u64 *)&entry->reply != fingerprint)
			return 1;
		if (meta_proven(meta))
			return 0;
		if (__sync_bool_compare_and_swap(&flow->meta, meta, meta_ended(meta, r->now)))
			return 1;
	}
	return 0;
}

/* Whether the flow number, just published, still has its reply: see reply_taken. */
static __always_inline bool reply_kept(const struct reservation *r, __u32 number)
{
	const struct table_slot *slot = table_at(&replies, r->at);

	return slot && *(volatile __u64 *)&slot->fingerprint == r->fingerprint &&
	       meta_number(*(volatile __u64 *)&slot->meta) == (number & 0xffffff);
}

__noinline __u32 reply_evict_once(struct reservation *r, __u64 fingerprint)
{
	const struct service *service;
	struct flow_entry *entry;
	struct table_slot *slot, *flow;
	struct victim *v;
	__u64 meta;
	__u32 i;

	if (!r)
		return NO_NUMBER;
	i = r->service & (2 * MAX_SERVICES - 1);
	service = bpf_map_lookup_elem(&services, &i);
	if (!service)
		return NO_NUMBER;
	v = &r->victim;
	table_victim(&replies, fingerprint, r->any, service, v);
	slot = table_at(&replies, v->number);
	entry = entry_at(meta_number(v->meta));
	flow = table_at(&flows, meta_number(v->meta));
	if (!slot || !entry || !flow)
		return NO_NUMBER;
	meta = *(volatile __u64 *)&flow->meta;
	if (meta_number(v->meta) != r->number && *(volatile __u64 *)&entry->reply == v->fingerprint) {
		if (*(volatile __u64 *)&flow->fingerprint == FINGERPRINT_BUSY)
			return EVICT_AGAIN; /* being made */
		if (alive(meta, r->now) && meta_proven(meta) && (!r->any || entry->service != service->id)) {
			/* its reply is to say so too */
			__sync_val_compare_and_swap(&slot->meta, v->meta, v->meta | (__u64)FLOW_PROVEN << 24);
			return EVICT_AGAIN;
		}
		/* Also of one that has expired: it may have been opened again by now. */
		if (__sync_val_compare_and_swap(&flow->meta, meta, meta_ended(meta, r->now)) != meta)
			return EVICT_AGAIN;
		if (alive(meta, r->now))
			count_evicted(meta);
	}
	if (!reply_take(v->number, v->fingerprint, v->meta))
		return EVICT_AGAIN;
	if (meta_number(v->meta) == r->number || reply_taken(r, meta_number(v->meta), v->fingerprint))
		return v->number;
	__sync_lock_test_and_set(&slot->fingerprint, v->fingerprint);
	reply_restored(v->number, v->fingerprint);
	return EVICT_AGAIN;
}

/* The same in replies: the flow of the reply ends with it. */
static __always_inline __u32 reply_evict(struct reservation *r, __u64 fingerprint)
{
	for (int i = 0; i < EVICT_TRIES; i++) {
		__u32 number = reply_evict_once(r, fingerprint);

		if (number != EVICT_AGAIN)
			return number;
	}
	return NO_NUMBER;
}

/* Ranks of who has a source port, see holder_rank. */
#define SNAT_STAYS (~0ull)
#define SNAT_ANSWERED (1ull << 43)
#define SNAT_YOUNG (1ull << 44)

/* Ends the unproven flow whose reply has a fingerprint and the slot at, for r's flow; not one
 * that the backend has answered since it was ranked. */
__noinline int holder_end(struct reservation *r, __u32 number, __u64 fingerprint, __u32 at)
{
	struct flow_entry *entry = entry_at(number);
	struct table_slot *slot = table_at(&flows, number), *reply = table_at(&replies, at);
	__u64 meta;

	if (!r || !slot || !entry || !reply)
		return 0;
	meta = *(volatile __u64 *)&slot->meta;
	if (*(volatile __u64 *)&entry->reply != fingerprint || *(volatile __u64 *)&slot->fingerprint == FINGERPRINT_BUSY)
		return 0; /* gone, or being made */
	if (alive(meta, r->now) && meta_proven(meta))
		return 0;
	if ((meta_answered(meta) || meta_answered(*(volatile __u64 *)&reply->meta)) && !(r->rank & (SNAT_ANSWERED | SNAT_YOUNG)))
		return 0;
	/* Also of one that has expired: it may have been opened again by now. */
	if (__sync_val_compare_and_swap(&slot->meta, meta, meta_ended(meta, r->now)) != meta)
		return 0;
	/* An answer that is in hand on another CPU is no one's from now on (rewrite_stands):
	 * its client would take the connection for open. */
	__sync_val_compare_and_swap(&entry->reply, fingerprint, 0);
	if (alive(meta, r->now))
		count_evicted(meta);
	return 1;
}

/* Ends the closed connection whose reply has a fingerprint, for a new one of the same
 * client, through another VIP, to the same backend (see state_next). */
__noinline int closed_end(struct reservation *r, __u32 number, __u64 fingerprint)
{
	struct flow_entry *entry = entry_at(number);
	struct table_slot *slot = table_at(&flows, number);
	__u64 meta;

	if (!r || !slot || !entry)
		return 0;
	meta = *(volatile __u64 *)&slot->meta;
	if (*(volatile __u64 *)&entry->reply != fingerprint || *(volatile __u64 *)&slot->fingerprint == FINGERPRINT_BUSY)
		return 0; /* gone, or being made */
	if (alive(meta, r->now) && meta_state(meta) != FLOW_CLOSING)
		return 0;
	if (__sync_val_compare_and_swap(&slot->meta, meta, meta_ended(meta, r->now)) != meta)
		return 0;
	__sync_val_compare_and_swap(&entry->reply, fingerprint, 0); /* what its backend still sends is no one's (rewrite_stands) */
	return 1;
}

/* Enters one reply key unless another live flow has it. */
static __always_inline int reply_reserve_here(struct reservation *r)
{
	struct flow_entry *own;
	__u64 fingerprint, meta;
	struct table_slot *slot;
	__u32 at;

	fingerprint = flow_fingerprint(&r->reply, KEY_REPLY);
	at = replies_find(fingerprint);
	slot = table_at(&replies, at);
	if (slot) {
		meta = *(volatile __u64 *)&slot->meta;
		if (alive(meta, r->now) && meta_number(meta) != r->number) {
			__u32 other = meta_number(meta);
			struct flow_entry *entry = entry_at(other);

			if (entry && entry->reply == fingerprint && !(r->takes && holder_end(r, other, fingerprint, at)) &&
			    !(r->opens && closed_end(r, other, fingerprint)))
				return 0;
		}
		/* Two CPUs may want it for two flows, or one for another key. */
		if (!reply_take(at, fingerprint, meta))
			return 0;
		if (meta_number(meta) != r->number && !reply_taken(r, meta_number(meta), fingerprint)) {
			__sync_lock_test_and_set(&slot->fingerprint, fingerprint);
			reply_restored(at, fingerprint);
			return 0;
		}
	} else {
		at = replies_claim(fingerprint, r->now);
		if (at == NO_NUMBER)
			at = reply_evict(r, fingerprint);
		slot = table_at(&replies, at);
		if (!slot) {
			r->full = 1;
			return 0;
		}
	}
	own = entry_at(r->number);
	if (own)
		own->reply = fingerprint; /* first: whoever finds the slot reads the flow's entry */
	*(volatile __u64 *)&slot->meta = meta_of(r->expiry, r->state & 3, r->number & 0xffffff);
	__sync_lock_test_and_set(&slot->fingerprint, fingerprint); /* a barrier before the look at the others */
	if (reply_duplicated(fingerprint, at, r->now)) {
		table_publish(slot, FINGERPRINT_NOBODY, 0);
		return 0;
	}
	r->fingerprint = fingerprint;
	r->at = at;
	return 1;
}

__noinline int reply_reserve(struct reservation *r) { return r ? reply_reserve_here(r) : 0; }

enum { SNAT_TRIES = 64, SNAT_FEW = 8 };

/* Makes the source of r candidate i of the pool: (start + i) mod pool, addresses
 * first. Returns the index of its address + 1, or 0. */
static __always_inline __u32 pool_source(struct reservation *r, __u32 i)
{
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
	return at + 1;
}

static long reserve_candidate(__u32 i, struct reservation **of)
{
	struct reservation *r = *of;
	__u32 nat = pool_source(r, i);

	if (!nat)
		return 1;
	if (!reply_reserve_here(r))
		return 0;
	r->nat = nat;
	return 1;
}

/* Picks what the backend sees as the source: the first free candidate of at most
 * r->tries and 64. */
__noinline int reserve_pool(struct reservation *r)
{
	if (!r)
		return 0;
	bpf_loop(SNAT_TRIES, reserve_candidate, &r, 0);
	return r->nat != 0;
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

/* The owner of r's reply key. 0: none. SNAT_STAYS: a flow that keeps it. Else an
 * unproven flow: a smaller number if it was made or renewed first, by the time-outs
 * of the new flow's service. One whose backend has answered, as in a handshake of TCP,
 * goes after those whose has not, and in the first three seconds after the answer after
 * all others: a SYN-ACK whose acknowledgement was lost is sent again after one second,
 * and then after two more (RFC 6298). A connection
 * keeps it, also where its bucket may not have it proven (may_prove). */
__noinline __u64 holder_rank(struct reservation *r)
{
	const struct service *service;
	struct table_slot *slot, *flow;
	struct flow_entry *entry;
	__u64 fingerprint, meta, age;
	bool answered;
	__u32 i;

	if (!r)
		return SNAT_STAYS;
	i = r->service & (2 * MAX_SERVICES - 1);
	service = bpf_map_lookup_elem(&services, &i);
	if (!service)
		return SNAT_STAYS;
	fingerprint = flow_fingerprint(&r->reply, KEY_REPLY);
	slot = table_at(&replies, replies_find(fingerprint));
	if (!slot)
		return 0;
	meta = *(volatile __u64 *)&slot->meta;
	if (!alive(meta, r->now) || meta_number(meta) == r->number)
		return 0;
	answered = meta_answered(meta);
	entry = entry_at(meta_number(meta));
	flow = table_at(&flows, meta_number(meta));
	if (!entry || !flow || *(volatile __u64 *)&entry->reply != fingerprint)
		return 0;
	if (*(volatile __u64 *)&flow->fingerprint == FINGERPRINT_BUSY)
		return SNAT_STAYS; /* being made */
	meta = *(volatile __u64 *)&flow->meta;
	if (alive(meta, r->now) && (meta_proven(meta) || (answered && !(meta_state(meta) & 1))))
		return SNAT_STAYS;
	answered |= meta_answered(meta);
	age = meta_expiry(meta) == NEVER ? 1 : meta_expiry(meta) + (1ull << 33) - flow_ttl(service, meta_state(meta));
	if (!answered)
		return age;
	return age | (r->now + (1ull << 33) - age < 3 * (__u64)params.ticks ? SNAT_YOUNG : SNAT_ANSWERED);
}

static long rank_candidate(__u32 i, struct reservation **of)
{
	struct reservation *r = *of;
	__u32 service = r->service & (MAX_SERVICES - 1), *next = bpf_map_lookup_elem(&snat_next, &service);
	__u64 rank;

	if (!next || i >= r->tries || i >= r->pool)
		return 1;
	r->start = __sync_fetch_and_add(next, 1);
	if (!pool_source(r, 0))
		return 1;
	rank = holder_rank(r);
	r->young += rank != SNAT_STAYS && rank & SNAT_YOUNG;
	if (rank < r->rank) {
		r->rank = rank;
		r->chosen = r->start;
	}
	return !rank || (r->tries == SNAT_FEW && rank < SNAT_ANSWERED);
}

/* Where no source port was found free, an unproven flow gives up its own: of r->tries
 * candidates the first by rank; of SNAT_FEW, which is in a flood, the first that its
 * backend has not answered. A young handshake does only if more than a quarter of them,
 * of SNAT_FEW more than half, are such: they are a flood of SYNs then, which must not
 * refuse everybody else. Each
 * attempt looks where the last one of the service ended, so the unproven flows of the
 * whole pool go by their age. Sets start to the candidate, which reserve_pool then takes. */
__noinline int reserve_taken(struct reservation *r)
{
	__u32 crowd;

	if (!r)
		return 0;
	r->rank = SNAT_STAYS;
	bpf_loop(SNAT_TRIES, rank_candidate, &r, 0);
	if (r->rank == SNAT_STAYS)
		return 0;
	crowd = (r->tries < r->pool ? r->tries : r->pool) / (r->tries == SNAT_FEW ? 2 : 4);
	if (r->rank & SNAT_YOUNG && r->young <= crowd)
		return 0;
	r->start = r->chosen;
	r->tries = 1;
	r->takes = 1;
	return 1;
}

/* A search that finds no source port costs as much as ten new flows, so a flood
 * must not cause one with each packet: a service may fail 250 times in a second and
 * 16 times at once, of each family and protocol. Then new flows look at a few ports
 * only, for one of an unproven flow, and if that fails too, 4,000 times in a second
 * and 256 times at once, they are refused before the search until there is credit
 * again, or one of its flows gives a port back. */
enum { SNAT_SEARCH, SNAT_TAKE = 8 };
enum { SEARCH_COST = 4000000, TAKE_COST = SEARCH_COST / 16, SNAT_DEPTH = 16 * SEARCH_COST };

static __always_inline __u64 *snat_credit(__u32 kind, __u32 service, bool is6, __u8 proto)
{
	__u32 i = (service & (MAX_SERVICES - 1)) * SNAT_POOLS + kind + is6 * 4 + (proto == P_TCP ? 0 : proto == P_UDP ? 1 : 2);

	return bpf_map_lookup_elem(&snat_searches, &i);
}

static __always_inline bool snat_may(const struct pkt *p, const struct service *service, __u32 kind)
{
	const __u64 *full = snat_credit(kind, service->id, p->version == 6, p->key.proto);

	return full && *(volatile const __u64 *)full + (kind ? TAKE_COST : SEARCH_COST) <= p->now * params.tick_ns + SNAT_DEPTH;
}

static __always_inline void snat_failed(const struct pkt *p, const struct service *service, __u32 kind)
{
	__u64 *full = snat_credit(kind, service->id, p->version == 6, p->key.proto);

	if (full)
		credit_take(full, kind ? TAKE_COST : SEARCH_COST, SNAT_DEPTH, p->now * params.tick_ns);
}

/* Makes the reply of a flow one that has expired. A packet in hand on another CPU may
 * renew it until then: without another try nothing would free it before its time-out. */
static __always_inline bool reply_expire(struct table_slot *slot, __u64 fingerprint, __u32 number)
{
	for (int i = 0; i < TOUCH_TRIES; i++) {
		__u64 meta = *(volatile __u64 *)&slot->meta;

		if (*(volatile __u64 *)&slot->fingerprint != fingerprint || meta_number(meta) != number)
			return false;
		if (__sync_val_compare_and_swap(&slot->meta, meta, meta & 0xffffff) == meta)
			return true;
	}
	return false;
}

/* Gives back the reply slot of a flow whose slot the caller has taken, and lets
 * flows search for its source port at once. */
__noinline int reply_release(__u32 number)
{
	struct flow_entry *entry = entry_at(number);
	__u64 fingerprint, *full;
	struct table_slot *slot;
	__u32 at;

	if (!entry)
		return 0;
	fingerprint = __sync_lock_test_and_set(&entry->reply, 0); /* first: replies in hand are no one's from now on (and reply_restored) */
	if (!fingerprint)
		return 0;
	at = replies_find(fingerprint);
	slot = table_at(&replies, at);
	if (!slot)
		return 0;
	if (!reply_expire(slot, fingerprint, number & 0xffffff)) {
		/* Another CPU has just entered the same reply for its flow, and is going to see that it is there twice. */
		slot = table_at(&replies, table_duplicate(&replies, params.flow_mask, fingerprint, at, 0));
		if (!slot || !reply_expire(slot, fingerprint, number & 0xffffff))
			return 0;
	}
	if (entry->nat) {
		full = snat_credit(SNAT_SEARCH, entry->service, !poses(entry->key.dst), entry->key.proto);
		if (full)
			*(volatile __u64 *)full = 0;
	}
	return 0;
}

/* Enters the reply key of a flow in mode NAT. Returns a reason if it cannot. */
static __always_inline int flow_reserve(struct pkt *p, struct flow_entry *entry, __u64 expiry, __u32 number, __u32 state)
{
	const struct service *service;
	const struct backend *b;
	struct reservation *r;
	bool snat;
	int ok;

	if (!p || !entry)
		return REASON_FLOW_TABLE_FULL;
	r = &p->reservation;
	__builtin_memset(r, 0, sizeof(*r));
	service = service_at(p, p->service);
	b = backend_at(p->slot, p->version);
	if (!service || !b)
		return REASON_FLOW_TABLE_FULL;
	snat = service->has_snat && !p->back; /* what its backend started keeps the client's address */
	r->now = p->now;
	r->expiry = expiry;
	r->state = state;
	r->number = number;
	r->echo = p->kind == KIND_ECHO;
	r->any = p->owned;
	r->service = (p->active & 1) * MAX_SERVICES + service->id;
	__builtin_memcpy(r->reply.src, b->addr, 16);
	r->reply.sport = r->echo ? p->key.sport : b->port ?: p->key.dport;
	r->reply.proto = p->key.proto;
	if (snat) {
		bool is6 = p->version == 6;

		r->first = service->snat + (is6 ? service->snat4 : 0);
		r->first_port = service->snat_first;
		r->ports = (__u32)service->snat_last - service->snat_first + 1;
		r->pool = r->ports * (is6 ? service->snat6 : service->snat4);
		r->start = flow_hash(p) >> 32;
		r->tries = SNAT_TRIES;
		ok = 0;
		if (!snat_may(p, service, SNAT_SEARCH)) {
			r->tries = SNAT_FEW;
		} else {
			ok = reserve_own(r, bpf_ntohs(p->key.sport)) || reserve_pool(r) || reserve_next(r, service->id);
			if (!ok && !r->full)
				snat_failed(p, service, SNAT_SEARCH);
		}
		if (!ok && snat_may(p, service, SNAT_TAKE)) {
			ok = reserve_taken(r) && reserve_pool(r);
			if (!ok && !r->full)
				snat_failed(p, service, SNAT_TAKE);
		}
	} else {
		__builtin_memcpy(r->reply.dst, p->key.src, 16);
		r->reply.dport = r->echo ? 0 : p->key.sport;
		r->opens = state == FLOW_OPENING;
		ok = reply_reserve(r);
	}
	if (!ok)
		return snat && !r->full ? REASON_SNAT_EXHAUSTED : REASON_FLOW_TABLE_FULL;
	entry->reply = r->fingerprint;
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
	struct table_slot *slot;
	__u64 expiry;

	service = service_at(p, p->service);
	b = backend_at(p->slot, p->version);
	if (!service || !b)
		return REASON_FLOW_TABLE_FULL;
	state = state_first(p->key.proto, flags);
	expiry = expiry_after(p->now, flow_ttl(service, state));
	number = p->old;
	if (number != NO_NUMBER) { /* expired, stale, or now of another backend */
		slot = table_at(&flows, number);
		if (slot && __sync_val_compare_and_swap(&slot->fingerprint, p->fingerprint, FINGERPRINT_BUSY) != p->fingerprint)
			return REASON_FLOW_TABLE_FULL; /* taken this instant */
	} else {
		number = here ? table_claim(&flows, params.flow_mask, params.bucket_slots, p->fingerprint, p->now)
			      : flows_claim(p->fingerprint, p->now);
		if (number == NO_NUMBER)
			number = flow_evict(p);
		slot = table_at(&flows, number);
	}
	entry = entry_at(number);
	if (!slot || !entry)
		return REASON_FLOW_TABLE_FULL;
	if (entry->reply)
		reply_release(number);
	if (service->mode == MODE_NAT) {
		int problem;

		/* From the next line on the entry has the new flow's reply, and still the old one's endpoints: an answer
		 * that comes now, late, to a source port that changes hands, is no one's (reply_find_here). */
		*(volatile __u32 *)&entry->target = NO_TARGET;
		problem = flow_reserve(p, entry, expiry, number, state);
		if (problem) {
			entry->reply = 0;
			/* Expired, and no one's: another CPU may have opened the flow
			 * meanwhile, in a slot that is looked at after this one. */
			table_publish(slot, FINGERPRINT_NOBODY, 0);
			return problem;
		}
	} else {
		entry->reply = 0;
		entry->nat = 0;
	}
	target = p->slot | (__u32)b->epoch << 16;
	copy_key(&entry->key, &p->key);
	entry->service = service->id;
	entry->hop = NO_NUMBER;
	__sync_lock_test_and_set(&entry->target, target); /* last, and a barrier */
	if (service->mode != MODE_NAT) {
		table_publish(slot, p->fingerprint, meta_of(expiry, state, target));
	} else {
		table_publish_first(slot, p->fingerprint, meta_of(expiry, state, target));
		if (!reply_kept(&p->reservation, number)) {
			__sync_val_compare_and_swap(&slot->meta, meta_of(expiry, state, target), meta_ended(target, p->now));
			return REASON_FLOW_TABLE_FULL;
		}
	}
	if (service->layouts)
		checked_forget(p);
	p->number = number;
	p->opened = 1;
	return REASON_NONE;
}

/* Asks for the line of an entry that is going to be written. The line of the slot is
 * still being read from memory, and a processor that has guessed where it leads
 * fetches both at once. */
static __always_inline void entry_soon(__u32 number)
{
	const struct flow_entry *entry = entry_at(number);

	if (entry)
		(void)*(volatile const __u64 *)&entry->reply;
}

/* Whether p->spare is the slot that table_claim would take: expired ones in the
 * bucket before go first. */
static __always_inline bool spare_first(const struct pkt *p)
{
	__u32 i = bucket_of(p->fingerprint, 0, params.flow_mask);
	const struct bucket *b;

	if (p->spare / BUCKET_SLOTS == i || TWICE(0, params.flow_mask))
		return true;
	b = bpf_map_lookup_elem(&flows, &i);
	if (!b)
		return false;
	barrier_var(b);
#pragma unroll
	for (int w = 0; w < BUCKET_SLOTS; w++) {
		if (b->slots[w].fingerprint != FINGERPRINT_BUSY && !alive(b->slots[w].meta, p->now))
			return false;
	}
	return true;
}

/* Makes the entry of a flow to the backend p->slot in the table slot p->spare, where replies are
 * not translated. False: flow_make must. */
static __always_inline bool flow_make_plain(struct pkt *p, const struct service *service, __u32 flags)
{
	const struct backend *b = backend_at(p->slot, p->version);
	struct flow_entry *entry = entry_at(p->spare);
	struct table_slot *slot = table_at(&flows, p->spare);
	__u32 state, target;

	if (!b || !entry || !slot || !spare_first(p))
		return false;
	if (__sync_val_compare_and_swap(&slot->fingerprint, 0, FINGERPRINT_BUSY))
		return false;
	state = state_first(p->key.proto, flags);
	target = p->slot | (__u32)b->epoch << 16;
	copy_key(&entry->key, &p->key);
	entry->reply = 0;
	entry->target = target;
	entry->nat = 0;
	entry->service = service->id;
	entry->hop = NO_NUMBER;
	table_publish(slot, p->fingerprint, meta_of(expiry_after(p->now, flow_ttl(service, state)), state, target));
	if (service->layouts)
		checked_forget(p);
	p->number = p->spare;
	p->opened = 1;
	return true;
}

/* Whether a new flow of the service would find no source port, and may not look for one. */
static __always_inline bool snat_refuses(const struct pkt *p, const struct service *service)
{
	return service->has_snat && !p->back && !snat_may(p, service, SNAT_SEARCH) && !snat_may(p, service, SNAT_TAKE);
}

__noinline int flow_open(struct pkt *p, __u32 flags)
{
	const struct service *service = p ? service_at(p, p->service) : NULL;

	if (!service)
		return REASON_FLOW_TABLE_FULL;
	return snat_refuses(p, service) ? REASON_SNAT_EXHAUSTED : flow_make(p, flags, false);
}

/* Whether an address may be that of a backend in mode NAT. */
static __always_inline bool maybe_nat_backend(const struct generation *g, const __u32 addr[4])
{
	__u64 a = (__u64)addr[1] << 32 | addr[0], b = (__u64)addr[3] << 32 | addr[2];
	__u32 bit = (a * g->mult[0] ^ b * g->mult[1]) >> 52;

	return g->nat_backends[bit / 64 & (NAT_BACKEND_WORDS - 1)] >> (bit & 63) & 1;
}

#define REPLY_UNKNOWN NO_NUMBER /* from a backend's address, and no reply */

/* Finds the flow that the packet is a reply of; sets service, number, slot.
 * Returns the number of the slot of the reply + 1, or 0, or REPLY_UNKNOWN. */
static __always_inline __u32 reply_find_here(struct pkt *p)
{
	const struct generation *g;
	struct flow_entry *entry;
	const struct backend *b;
	__u32 number, found, active, target;
	struct table_slot *slot;
	__u64 fingerprint;

	active = p->active & 1;
	g = bpf_map_lookup_elem(&generations, &active);
	if (!g || !maybe_nat_backend(g, p->key.src))
		return 0;
	fingerprint = flow_fingerprint(&p->key, KEY_REPLY);
	found = replies_find_here(fingerprint);
	if (found == NO_NUMBER)
		return REPLY_UNKNOWN;
	slot = table_at(&replies, found);
	if (!slot || !alive(slot->meta, p->now))
		return REPLY_UNKNOWN;
	number = meta_number(slot->meta);
	entry = entry_at(number);
	if (!entry || entry->reply != fingerprint)
		return REPLY_UNKNOWN;
	target = *(volatile __u32 *)&entry->target;
	if (target == NO_TARGET)
		return REPLY_UNKNOWN;
	b = backend_at(target & 0xffff, p->version);
	if (!b || b->epoch != (__u8)(target >> 16))
		return REPLY_UNKNOWN;
	p->service = b->service;
	p->slot = target & 0xffff;
	p->number = number;
	p->fingerprint = fingerprint;
	p->back = 1;
	return found + 1;
}

__noinline __u32 reply_find(struct pkt *p)
{
	__u32 found = p ? reply_find_here(p) : 0;

	return found == REPLY_UNKNOWN ? 0 : found;
}
