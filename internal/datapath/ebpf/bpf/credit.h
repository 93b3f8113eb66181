/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * credit.h: a token bucket that is exact on any number of CPUs. It is kept as the
 * time at which it would be full again, so one word holds it.
 */
#pragma once

#include "types.h"

/* Spends cost ns of a bucket that holds depth ns of credit. */
static __always_inline int credit_take(__u64 *full, __u64 cost, __u64 depth, __u64 ns)
{
	__u64 old = *(volatile __u64 *)full, from, seen;

	for (int i = 0; i < 8; i++) {
		from = old > ns ? old : ns;
		if (from + cost > ns + depth)
			return 0;
		seen = __sync_val_compare_and_swap(full, old, from + cost);
		if (seen == old)
			return 1;
		old = seen; /* another CPU was faster */
	}
	return 0; /* and again and again: that many were let in */
}
