/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * params.h: what is fixed when the programs are loaded. The kernel knows these
 * values when it verifies, so what they switch off is not in the program.
 */
#pragma once

#include "types.h"

enum clock { CLOCK_JIFFIES, CLOCK_MANUAL };

struct parameters {
	__u64 hash[20];         /* random words of the flow tables' hash */
	__u32 flow_mask;        /* buckets of the flow table - 1 */
	__u32 fragment_mask;    /* buckets of the fragment table - 1 */
	__u32 vip_mask;         /* elements of vips - 1, of one generation */
	__u32 hop_shift;        /* ticks >> hop_shift: time in flow_entry.hop */
	__u32 ticks;            /* of the clock in one second */
	__u32 fragment_ttl;     /* ticks */
	__u32 clock;            /* enum clock */
	__u32 partial;          /* XDP: local senders leave checksums to us (veth) */
	__u32 jumbo;            /* XDP: frames may have parts outside the linear one */
	__u32 record;           /* tests: write struct verdict for each packet */
	__u32 hold;             /* early fragments that may wait in user space; 0: none */
	__u32 hold_each;        /* and of one datagram */
	__u32 tick_ns;
	__u32 fragment_slots;
	__u32 bucket_slots;     /* of each bucket of flows; less than BUCKET_SLOTS only in tests */
	__u32 home;             /* routes are requested as if packets came in here; 0: as they come in */
	__u32 front;            /* mode mark: packets without a backend here go on to a queue (front.h) */
};

const volatile struct parameters params;
