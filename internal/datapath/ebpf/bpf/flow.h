/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * flow.h: the table behind conntrack and fragments. Each flow has two buckets
 * of one cache line with four ways each; it sits in the first with room. A way
 * is found by a 64-bit print from a keyed, strongly universal hash (two
 * multilinear sums with random 64-bit words, Lemire and Kaser 2014), so nobody
 * without the words can aim at a bucket, and a hit touches one line.
 *
 * A table whose two buckets hold eight live flows is full for that flow.
 */
#pragma once

#include "clock.h"

#define PRINT_BUSY 1ull /* claimed, being written */
#define EXPIRY_BITS 38
#define NEVER ((1ull << EXPIRY_BITS) - 1)
#define WAY_SHIFT 26

struct print {
	__u64 print;
	__u32 place; /* not yet masked */
};

static __always_inline __u32 print_place(__u64 print) { return print >> 40 ^ print; }

static __always_inline void flow_print(const struct flow_key *key, struct print *out)
{
	const __u32 *w = (const __u32 *)key;
	__u64 a = 0, b = 0;

#pragma unroll
	for (int i = 0; i < 10; i += 2) {
		__u64 x = w[i], y = w[i + 1];

		a += (params.hash[i] + x) * (params.hash[i + 1] + y);
		b += (params.hash[i + 10] + x) * (params.hash[i + 11] + y);
	}
	out->print = (a & 0xffffffff00000000ull) | b >> 32 | 2;
	out->place = print_place(out->print);
}

static __always_inline __u64 way_expiry(__u64 meta) { return meta >> WAY_SHIFT; }
static __always_inline __u32 way_state(__u64 meta) { return meta >> 24 & 3; }
static __always_inline __u32 way_number(__u64 meta) { return meta & 0xffffff; }
static __always_inline __u32 way_slot(__u64 meta) { return meta & 0xffff; }
static __always_inline __u8 way_epoch(__u64 meta) { return meta >> 16; }

static __always_inline __u64 way_meta(__u64 expiry, __u32 state, __u32 number)
{
	return expiry << WAY_SHIFT | (__u64)state << 24 | number;
}

/* The expiry of something that lives ttl ticks from now; ~0: for ever. */
static __always_inline __u64 expiry_after(__u64 now, __u32 ttl)
{
	__u64 e = now + ttl;

	return ttl == ~0u || e > NEVER ? NEVER : e;
}

static __always_inline __u32 other_place(const struct print *p)
{
	return p->place ^ (__u32)(p->print >> 24);
}

/* Returns the way of a print, whatever its age, and its number. */
static __always_inline struct way *table_find(void *table, __u32 mask, const struct print *p, __u32 *number)
{
	__u32 place = p->place;

#pragma unroll
	for (int choice = 0; choice < 2; choice++) {
		__u32 i = place & mask;
		struct bucket *b = bpf_map_lookup_elem(table, &i);

		if (!b)
			return NULL;
#pragma unroll
		for (int w = 0; w < WAYS; w++) {
			if (b->way[w].print == p->print) {
				*number = i * WAYS + w;
				return &b->way[w];
			}
		}
		place = other_place(p);
	}
	return NULL;
}

/* Takes a free or expired way. The caller writes what belongs to it and then
 * calls table_publish. NULL: full. */
static __always_inline struct way *table_claim(void *table, __u32 mask, __u32 ways, const struct print *p, __u64 now, __u32 *number)
{
	__u32 place = p->place;

	for (int choice = 0; choice < 2; choice++) {
		__u32 i = place & mask;
		struct bucket *b = bpf_map_lookup_elem(table, &i);

		if (!b)
			return NULL;
#pragma unroll
		for (int w = 0; w < WAYS; w++) {
			__u64 old = b->way[w].print;

			if (w >= ways || old == PRINT_BUSY || (old && way_expiry(b->way[w].meta) > now))
				continue;
			if (__sync_val_compare_and_swap(&b->way[w].print, old, PRINT_BUSY) != old)
				continue;
			*number = i * WAYS + w;
			return &b->way[w];
		}
		place = other_place(p);
	}
	return NULL;
}

static __always_inline void table_publish(struct way *way, __u64 print, __u64 meta)
{
	*(volatile __u64 *)&way->meta = meta;
	asm volatile("" ::: "memory");
	*(volatile __u64 *)&way->print = print;
}

/* Frees a way, unless somebody else took it meanwhile. */
static __always_inline void table_free(struct way *way, __u64 print)
{
	__sync_val_compare_and_swap(&way->print, print, 0);
}
