/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * tcx_strip.h: how the TCX hook takes the headers of a tunnel off (tunnel.h).
 */
#pragma once

struct opening;

static __always_inline long ctx_strip(ctx_t *ctx, struct opening *o, __u16 type);

#include "tunnel.h"

/* linux/bpf.h from 6.3 on. */
enum { DECAP_IPV4 = 1 << 7, DECAP_IPV6 = 1 << 8 };

static __always_inline long ctx_strip(ctx_t *ctx, struct opening *o, __u16 type)
{
	__u64 flags = (type == bpf_htons(0x0800) ? DECAP_IPV4 : DECAP_IPV6) | BPF_F_ADJ_ROOM_FIXED_GSO;
	__s32 gone = o->inner - o->l3;

	if (bpf_skb_adjust_room(ctx, -gone, BPF_ADJ_ROOM_MAC, flags))
		return -1;
	return bpf_skb_store_bytes(ctx, o->l3 - 2, &type, 2, 0);
}
