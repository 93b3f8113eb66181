/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * checked.h: flows that a connection id steered to a backend a moment ago, in the
 * modes whose replies are not translated, and whose entry was found right then: it
 * names that backend and is proven, or there is none and Maglev gives that backend.
 * Until the end of that stretch of time, of half a second to a second, their
 * packets need not look at the flow table, whose lines are far from the processor
 * where there are many flows. An entry is renewed that much later.
 *
 * A set of two words for the hash of a flow: 22 bits of the flow, its backend, the
 * generation and the time, 10 bits of the time. A flow whose entry is made again
 * loses its set (flow_make), and a new generation makes all words stale. Where the
 * set is full, the flow table is looked at.
 */
#pragma once

#include "maps.h"
#include "params.h"
#include "parse.h"

enum { CHECKED_TIME = (1 << 10) - 1 };

static __always_inline struct checked *checked_of(const struct pkt *p)
{
	__u32 i = p->fingerprint >> 32 & (CHECKED_SETS - 1);

	return bpf_map_lookup_elem(&checked, &i);
}

/* The word of the packet's flow, if it belongs to slot. */
static __always_inline __u32 checked_word(const struct pkt *p, __u32 slot)
{
	__u64 time = p->now >> (params.hop_shift - 3); /* at most a second each */
	__u32 flow = p->fingerprint + slot * 0x9e3779b1 + p->active * 0x85ebca77 + (time >> 10) * 0xc2b2ae3d;

	return (flow & ~CHECKED_TIME) | (time & CHECKED_TIME);
}

static __always_inline bool checked_here(const struct pkt *p, __u32 slot)
{
	const struct checked *set = checked_of(p);
	__u32 word = checked_word(p, slot);

	if (!set)
		return false;
	return *(volatile const __u32 *)&set->word[0] == word || *(volatile const __u32 *)&set->word[1] == word;
}

/* Enters the flow in place of one of an earlier time, if there is one. Not in line,
 * like what follows: the caller's stack is nearly full. */
__noinline int checked_enter(struct pkt *p, __u32 slot)
{
	struct checked *set;
	__u32 word;

	if (!p)
		return 0;
	set = checked_of(p);
	word = checked_word(p, slot);
	if (!set)
		return 0;
	if ((*(volatile __u32 *)&set->word[0] ^ word) & CHECKED_TIME)
		*(volatile __u32 *)&set->word[0] = word;
	else if ((*(volatile __u32 *)&set->word[1] ^ word) & CHECKED_TIME)
		*(volatile __u32 *)&set->word[1] = word;
	return 0;
}

/* The flow's entry is another from now on. */
__noinline int checked_forget(struct pkt *p)
{
	struct checked *set = p ? checked_of(p) : NULL;

	if (set)
		*(volatile __u64 *)set = 0;
	return 0;
}
