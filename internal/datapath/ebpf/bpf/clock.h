/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * clock.h: time in ticks (params.ticks in a second). The kernel's own tick is
 * read in one instruction, the nanosecond clock costs thirty times that.
 */
#pragma once

#include "base.h"
#include "params.h"

static __always_inline const struct control *control_of(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&controls, &zero);
}

static __always_inline __u64 clock_now(const struct control *control)
{
	if (params.clock == CLOCK_MANUAL)
		return control->now;
	return bpf_jiffies64();
}
