/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * rate.h: what happens so many times a second at most: buckets of one second's
 * credit.
 */
#pragma once

#include "clock.h"
#include "credit.h"
#include "maps.h"
#include "params.h"

/* Services have the buckets of their numbers. Errors about sizes have one of
 * their own: who sends hop limits that end here takes none of it. */
enum {
	RATE_SIZES = 0,
	RATE_NEIGHBOURS = MAX_SERVICES,
	RATE_HOPS,
	RATE_CROWDED, /* entries without replies, while the table is crowded */
	RATE_ECHOES,  /* answered pings of service 0, and so on */
	THOUSAND = 1000000 /* ns: a thousand in a second */
};

/* Spends cost ns of a bucket's credit. */
__noinline int rate_spend(__u32 id, __u32 cost, __u64 now)
{
	__u64 *full = bpf_map_lookup_elem(&rates, &id), ns = now * params.tick_ns;

	if (!full)
		return 1;
	return credit_take(full, cost, 1000000000ull, ns);
}

/* Spends the credit of one new flow. */
static __always_inline bool rate_take(const struct service *service, __u64 now)
{
	return !service->flow_cost || rate_spend(service->id, service->flow_cost, now);
}

/* Whether a new flow whose replies are not translated gets an entry; without
 * one it goes by Maglev. Where no rate is configured, a crowded table takes as
 * many in a second as fill it up within the time-out of UDP flows. */
static __always_inline bool rate_enter(const struct service *service, __u64 now)
{
	const struct control *control;

	if (service->flow_cost)
		return rate_spend(service->id, service->flow_cost, now);
	control = control_of();
	return !control || *(volatile const __u64 *)&control->crowded <= now ||
	       rate_spend(RATE_CROWDED, service->crowded_cost, now);
}
