/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * base.h: the tables that the balancer (core.h) and the relay (turn.h) both have,
 * each its own.
 */
#pragma once

#include "map.h"

/* A next hop towards clients, from the kernel's routes, shared by all flows whose
 * client is reached through it (route.h). */
struct client_hop {
	struct out out;
	__u32 stamp; /* time in which it was last looked up; HOP_FREE, HOP_BUSY */
	__u64 pad;
};
_Static_assert(sizeof(struct client_hop) == 32, "two in a cache line");

MAP(ARRAY, controls, __u32, struct control, 1, BPF_F_MMAPABLE);
MAP(ARRAY, client_hops, __u32, struct client_hop, CLIENT_HOPS + SPARE_HOPS, BPF_F_MMAPABLE);
