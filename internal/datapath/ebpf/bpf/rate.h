/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * rate.h: what happens so many times a second at most, exactly on any number of
 * CPUs. A bucket of one second's credit is kept as the time at which it would
 * be full again, so one word holds it.
 */
#pragma once

#include "maps.h"
#include "params.h"

/* Services have the buckets of their numbers. Errors about sizes have one of
 * their own: who sends hop limits that end here takes none of it. */
enum { RATE_SIZES = 0, RATE_NEIGHBOURS = MAX_SERVICES, RATE_HOPS, THOUSAND = 1000000 /* ns: a thousand in a second */ };

/* Spends cost ns of a bucket's credit. */
__noinline int rate_spend(__u32 id, __u32 cost, __u64 now)
{
	__u64 *full = bpf_map_lookup_elem(&rates, &id), old, from, seen, ns = now * params.tick_ns;

	if (!full)
		return 1;
	old = *(volatile __u64 *)full;
	for (int i = 0; i < 8; i++) {
		from = old > ns ? old : ns;
		if (from + cost > ns + 1000000000ull)
			return 0;
		seen = __sync_val_compare_and_swap(full, old, from + cost);
		if (seen == old)
			return 1;
		old = seen; /* another CPU was faster */
	}
	return 0; /* and again and again: that many were let in */
}

/* Spends the credit of one new flow. */
static __always_inline bool rate_take(const struct service *service, __u64 now)
{
	return !service->flow_cost || rate_spend(service->id, service->flow_cost, now);
}
