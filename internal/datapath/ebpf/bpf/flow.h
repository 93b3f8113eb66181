/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * flow.h: the table behind conntrack and fragments. Each flow has three buckets
 * of one cache line with four slots each; it sits in the first with room. The
 * first of the three is in the table's dense part, at most two megabytes, so
 * that as many flows as a processor's cache holds share lines instead of having
 * one each, however large the table. A slot is found by a 64-bit fingerprint from a
 * keyed, strongly universal hash (two multilinear sums with random 64-bit
 * words, Lemire and Kaser 2014), so no one without the words can aim at a
 * bucket, and a hit touches one line, where the dense part is full two.
 *
 * An entry that is no longer wanted expires; its fingerprint stays until another
 * takes its slot, or until user space sees that its bucket has not overflowed.
 *
 * A table whose three buckets hold twelve live flows is full for that flow. Then
 * one of those that have not proven themselves (FLOW_PROVEN) makes room: the one
 * that was made or renewed first, as its expiry shows. There are no shares of
 * sources: the keyed hash spreads each source over all buckets, so what makes room
 * is that of whoever has most there. At least one slot of each bucket outside of the
 * dense part is free, expired or unproven (may_prove), so each new flow has at
 * least two that may make room; only a table of one slot can fill up for good.
 *
 * A slot has a number: four times its bucket plus its index in the bucket.
 */
#pragma once

#include "clock.h"
#include "maps.h"
#include "parse.h"

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

#define FINGERPRINT_BUSY 1ull /* claimed, being written */
#define FINGERPRINT_NOBODY 2ull /* of an expired slot; a fingerprint of a key with odds of 2^-63 */
#define EXPIRY_BITS 37
#define NEVER ((1ull << EXPIRY_BITS) - 1)
#define EXPIRY_SHIFT 27
#define STATE_SHIFT 24 /* in the meta of a slot, as its expiry is EXPIRY_SHIFT */

/* A reply's key hashes apart from a flow's of the same addresses. */
enum { KEY_FLOW, KEY_REPLY, KEY_DATAGRAM, KEY_LEFT };

static __always_inline __u64 flow_fingerprint(const struct flow_key *key, __u32 domain)
{
	const __u32 *w = (const __u32 *)key;
	__u64 a = 0, b = 0;

#pragma unroll
	for (int i = 0; i < 10; i += 2) {
		__u64 x = w[i], y = w[i + 1];

		if (i == 8)
			y |= domain << 8;
		a += (params.hash[i] + x) * (params.hash[i + 1] + y);
		b += (params.hash[i + 10] + x) * (params.hash[i + 11] + y);
	}
	return (a & 0xffffffff00000000ull) | b >> 32 | 2;
}

static __always_inline __u64 meta_expiry(__u64 meta) { return meta >> EXPIRY_SHIFT; }
static __always_inline bool alive(__u64 meta, __u64 now)
{
	return meta_expiry(meta) > now || meta_expiry(meta) == NEVER;
}

static __always_inline __u32 meta_state(__u64 meta) { return meta >> STATE_SHIFT & 3; }
static __always_inline __u32 meta_progress(__u64 meta) { return meta >> 24 & 7; } /* state and FLOW_PROVEN */
static __always_inline __u32 meta_number(__u64 meta) { return meta & 0xffffff; }
static __always_inline __u32 meta_backend(__u64 meta) { return meta & 0xffff; }
static __always_inline __u8 meta_epoch(__u64 meta) { return meta >> 16; }

/* Of a reply, or of a flow in its handshake: the backend has answered. */
static __always_inline bool meta_answered(__u64 meta) { return meta >> 24 & FLOW_PROVEN; }

/* Whether a live flow must stay in a full table. A handshake proves nothing yet. */
static __always_inline bool meta_proven(__u64 meta)
{
	return meta >> 24 & FLOW_PROVEN && meta_state(meta) != FLOW_OPENING;
}

static __always_inline __u64 meta_of(__u64 expiry, __u32 progress, __u32 number)
{
	return expiry << EXPIRY_SHIFT | (__u64)progress << STATE_SHIFT | number;
}

/* The meta of a slot that ends before its time: it expired so long ago that no
 * packet in hand takes it for alive, and not so long that reclaim.go takes it for
 * one that had expired when its pass began. */
enum { ENDED_AGO = 64 };

static __always_inline __u64 meta_ended(__u64 meta, __u64 now)
{
	return meta_of(now - ENDED_AGO, 0, meta & 0xffffff);
}

/* The expiry of something that lives ttl ticks from now; ~0: for ever. */
static __always_inline __u64 expiry_after(__u64 now, __u32 ttl)
{
	__u64 e = now + ttl;

	return ttl == ~0u || e > NEVER ? NEVER : e;
}

enum { CHOICES = 3, DENSE_MASK = (1 << 15) - 1 };

/* The dense part: a quarter of the table, 32,768 buckets at most. */
#define DENSE(mask) ((mask) >> 2 & DENSE_MASK)

/* The bucket that a fingerprint has by a choice. The first is in the dense part, the
 * others never are: what overflows there finds a table that is nearly empty,
 * not the same bucket or another full one. They spread by the upper bits, the
 * dense part by the lower ones. */
static __always_inline __u32 bucket_of(__u64 fingerprint, int choice, __u32 mask)
{
	__u32 index = fingerprint >> 40 ^ fingerprint;

	if (choice == 0 || !mask)
		return index & DENSE(mask);
	if (choice == 2)
		index ^= fingerprint >> 24;
	return DENSE(mask) + 1 + ((__u64)index * (mask - DENSE(mask)) >> 32);
}

/* In a table of one bucket all choices are the same. */
#define TWICE(choice, mask) ((choice) == 0 && !(mask))

static __always_inline struct table_slot *table_at(void *table, __u32 number)
{
	__u32 i = number / BUCKET_SLOTS;
	struct bucket *b = bpf_map_lookup_elem(table, &i);

	if (!b)
		return NULL;
	barrier_var(b); /* no arithmetic before the check */
	return &b->slots[number % BUCKET_SLOTS];
}

/* Returns the number of a fingerprint, whatever its age. A slot that was never used
 * says that its bucket never overflowed into the next one. */
static __always_inline __u32 table_find(void *table, __u32 mask, __u64 fingerprint, int from)
{
#pragma unroll
	for (int choice = 0; choice < CHOICES; choice++) {
		__u32 i = bucket_of(fingerprint, choice, mask);
		struct bucket *b;
		bool room = false;

		if (choice < from || TWICE(choice, mask))
			continue;
		b = bpf_map_lookup_elem(table, &i);

		if (!b)
			return NO_NUMBER;
#pragma unroll
		for (int w = 0; w < BUCKET_SLOTS; w++) {
			__u64 found = *(volatile __u64 *)&b->slots[w].fingerprint;

			if (found == fingerprint)
				return i * BUCKET_SLOTS + w;
			room |= !found;
		}
		if (room)
			return NO_NUMBER;
	}
	return NO_NUMBER;
}

/* The same in one bucket. *spare: a slot of it that was never used; NO_NUMBER:
 * there is none, so the next bucket must be searched too. */
static __always_inline __u32 table_peek(void *table, __u32 mask, __u32 slots, __u64 fingerprint, int choice, __u32 *spare)
{
	__u32 i = bucket_of(fingerprint, choice, mask);
	struct bucket *b = bpf_map_lookup_elem(table, &i);
	__u64 found[BUCKET_SLOTS];

	*spare = NO_NUMBER;
	if (!b)
		return NO_NUMBER;
#pragma unroll
	for (int w = 0; w < BUCKET_SLOTS; w++) {
		found[w] = *(volatile __u64 *)&b->slots[w].fingerprint;
		if (found[w] == fingerprint)
			return i * BUCKET_SLOTS + w;
	}
#pragma unroll
	for (int w = 0; w < BUCKET_SLOTS; w++) {
		if (!found[w] && w < slots) {
			*spare = i * BUCKET_SLOTS + w;
			return NO_NUMBER;
		}
	}
	return NO_NUMBER;
}

/* Claims a slot for writing, if fingerprint and meta are still its own. */
static __always_inline bool table_take(struct table_slot *slot, __u64 fingerprint, __u64 meta)
{
	if (__sync_val_compare_and_swap(&slot->fingerprint, fingerprint, FINGERPRINT_BUSY) != fingerprint)
		return false;
	if (*(volatile __u64 *)&slot->meta == meta)
		return true;
	/* The same flow was opened again in between. A barrier, for reply_restored reads after it. */
	__sync_lock_test_and_set(&slot->fingerprint, fingerprint);
	return false;
}

/* After the slot of a reply was claimed and given back: frees the reply if its flow has released it meanwhile, and did not find it. */
int reply_restored(__u32 at, __u64 fingerprint);

/* Takes a free or expired slot. The caller writes what belongs to it and then
 * calls table_publish. NO_NUMBER: full. */
static __always_inline __u32 table_claim(void *table, __u32 mask, __u32 slots, __u64 fingerprint, __u64 now)
{
#pragma unroll
	for (int choice = 0; choice < CHOICES; choice++) {
		__u32 i = bucket_of(fingerprint, choice, mask);
		struct bucket *b;

		if (TWICE(choice, mask))
			continue;
		b = bpf_map_lookup_elem(table, &i);
		if (!b)
			return NO_NUMBER;
#pragma unroll
		for (int w = 0; w < BUCKET_SLOTS; w++) {
			__u64 old = *(volatile __u64 *)&b->slots[w].fingerprint, meta = *(volatile __u64 *)&b->slots[w].meta;

			if (w >= slots || old == FINGERPRINT_BUSY || (old && alive(meta, now)))
				continue;
			if (table_take(&b->slots[w], old, meta))
				return i * BUCKET_SLOTS + w;
			if (table == &replies)
				reply_restored(i * BUCKET_SLOTS + w, old);
		}
	}
	return NO_NUMBER;
}

/* Of the slots that a fingerprint may have, the unproven one whose flow was made or
 * renewed first, by the time-outs of the new flow's service. With any, where all
 * are proven the one that expires next. Ties, as of flows that never expire, are
 * broken by the fingerprint. v is in a table, whose contents the verifier does not follow. */
static __always_inline void table_victim(void *table, __u64 fingerprint, bool any, const struct service *service,
					 volatile struct victim *v)
{
	v->age = ~0ull;
	v->fingerprint = v->meta = 0;
	v->number = NO_NUMBER;
#pragma unroll
	for (int choice = 0; choice < CHOICES; choice++) {
		__u32 i = bucket_of(fingerprint, choice, params.flow_mask);
		__u64 best = v->age;
		struct bucket *b;

		if (TWICE(choice, params.flow_mask))
			continue;
		b = bpf_map_lookup_elem(table, &i);
		if (!b)
			return;
#pragma unroll
		for (int w = 0; w < BUCKET_SLOTS; w++) {
			__u64 found = *(volatile __u64 *)&b->slots[w].fingerprint, meta = *(volatile __u64 *)&b->slots[w].meta, age;
			bool proven = meta_proven(meta);

			if (w >= params.bucket_slots || found <= FINGERPRINT_BUSY || (!any && proven))
				continue;
			age = meta_expiry(meta) == NEVER ? 0 : meta_expiry(meta) + (1ull << 32);
			age -= proven || !age ? 0 : flow_ttl(service, meta_state(meta));
			age = (__u64)proven << 63 | age << 4 | ((choice * BUCKET_SLOTS + w) ^ (fingerprint >> 56 & 15));
			if (age >= best)
				continue;
			v->age = best = age;
			v->fingerprint = found;
			v->meta = meta;
			v->number = i * BUCKET_SLOTS + w;
		}
	}
}

/* Whether the bucket keeps one that may make room, were this one proven.
 * Buckets of the dense part may fill up, for the others of each choice do not. */
static __always_inline bool may_prove(void *table, __u32 number, __u64 now)
{
	__u32 i = number / BUCKET_SLOTS;
	struct bucket *b;

	if (params.bucket_slots == 1 || (params.flow_mask && i <= DENSE(params.flow_mask)))
		return true;
	b = bpf_map_lookup_elem(table, &i);
	if (!b)
		return false;
#pragma unroll
	for (int w = 0; w < BUCKET_SLOTS; w++) {
		__u64 found = *(volatile __u64 *)&b->slots[w].fingerprint, meta = *(volatile __u64 *)&b->slots[w].meta;

		if (w < params.bucket_slots && w != number % BUCKET_SLOTS && (!found || !alive(meta, now) || !meta_proven(meta)))
			return true;
	}
	return false;
}

/* Functions of their own, so that the kernel verifies each once and not for every path to it. */
__noinline int flows_may_prove(__u32 number, __u64 now) { return may_prove(&flows, number, now); }
__noinline int replies_may_prove(__u32 number, __u64 now) { return may_prove(&replies, number, now); }

/* Another live slot of a fingerprint: two CPUs entered it at once. Both publish theirs
 * first (table_publish_first), so at least the later one sees both. */
static __always_inline __u32 table_duplicate(void *table, __u32 mask, __u64 fingerprint, __u32 at, __u64 now)
{
#pragma unroll
	for (int choice = 0; choice < CHOICES; choice++) {
		__u32 i = bucket_of(fingerprint, choice, mask);
		struct bucket *b;
		bool room = false;

		if (TWICE(choice, mask))
			continue;
		b = bpf_map_lookup_elem(table, &i);
		if (!b)
			return NO_NUMBER;
#pragma unroll
		for (int w = 0; w < BUCKET_SLOTS; w++) {
			__u64 found = *(volatile __u64 *)&b->slots[w].fingerprint;

			if (found == fingerprint && i * BUCKET_SLOTS + w != at && alive(*(volatile __u64 *)&b->slots[w].meta, now))
				return i * BUCKET_SLOTS + w;
			room |= !found;
		}
		if (room)
			return NO_NUMBER;
	}
	return NO_NUMBER;
}

/* The tables' own functions, so that the kernel verifies each search once. */
__noinline __u32 flows_find(__u64 fingerprint) { return table_find(&flows, params.flow_mask, fingerprint, 0); }
__noinline __u32 replies_find(__u64 fingerprint) { return table_find(&replies, params.flow_mask, fingerprint, 0); }
__noinline __u32 fragments_find(__u64 fingerprint) { return table_find(&fragments, params.fragment_mask, fingerprint, 0); }

__noinline __u32 fragment_duplicate(__u64 fingerprint, __u32 at, __u64 now)
{
	return table_duplicate(&fragments, params.fragment_mask, fingerprint, at, now);
}

__noinline __u32 flows_claim(__u64 fingerprint, __u64 now)
{
	return table_claim(&flows, params.flow_mask, params.bucket_slots, fingerprint, now);
}

__noinline __u32 replies_claim(__u64 fingerprint, __u64 now)
{
	return table_claim(&replies, params.flow_mask, params.bucket_slots, fingerprint, now);
}

__noinline __u32 fragments_claim(__u64 fingerprint, __u64 now)
{
	return table_claim(&fragments, params.fragment_mask, params.fragment_slots, fingerprint, now);
}

/* The last choice, after table_peek found the others full. */
__noinline __u32 flows_find_last(__u64 fingerprint) { return table_find(&flows, params.flow_mask, fingerprint, 2); }
__noinline __u32 replies_find_last(__u64 fingerprint) { return table_find(&replies, params.flow_mask, fingerprint, 2); }

/* In line where nanoseconds matter: a return costs ten of them. */
static __always_inline __u32 flows_find_here(__u64 fingerprint, __u32 *spare)
{
	__u32 number = NO_NUMBER;

	*spare = NO_NUMBER;
	if (!TWICE(0, params.flow_mask))
		number = table_peek(&flows, params.flow_mask, params.bucket_slots, fingerprint, 0, spare);
	if (number == NO_NUMBER && *spare == NO_NUMBER)
		number = table_peek(&flows, params.flow_mask, params.bucket_slots, fingerprint, 1, spare);
	return number == NO_NUMBER && *spare == NO_NUMBER ? flows_find_last(fingerprint) : number;
}

static __always_inline __u32 replies_find_here(__u64 fingerprint)
{
	__u32 number = NO_NUMBER, spare = NO_NUMBER;

	if (!TWICE(0, params.flow_mask))
		number = table_peek(&replies, params.flow_mask, params.bucket_slots, fingerprint, 0, &spare);
	if (number == NO_NUMBER && spare == NO_NUMBER)
		number = table_peek(&replies, params.flow_mask, params.bucket_slots, fingerprint, 1, &spare);
	return number == NO_NUMBER && spare == NO_NUMBER ? replies_find_last(fingerprint) : number;
}

static __always_inline void table_publish(struct table_slot *slot, __u64 fingerprint, __u64 meta)
{
	*(volatile __u64 *)&slot->meta = meta;
	asm volatile("" ::: "memory");
	*(volatile __u64 *)&slot->fingerprint = fingerprint;
}

/* The same, and whatever is read after it is read after others can see it. */
static __always_inline void table_publish_first(struct table_slot *slot, __u64 fingerprint, __u64 meta)
{
	table_publish(slot, fingerprint, meta);
	__sync_val_compare_and_swap(&slot->meta, meta, meta);
}
