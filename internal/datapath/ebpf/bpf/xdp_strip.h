/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * xdp_strip.h: how the XDP hook takes the headers of a tunnel off (tunnel.h).
 */
#pragma once

struct opening;

static __always_inline long ctx_strip(ctx_t *ctx, struct opening *o, __u16 type);

#include "tunnel.h"

/* Moves the link header, tags included, up to the inner packet. */
static __always_inline long ctx_strip(ctx_t *ctx, struct opening *o, __u16 type)
{
	__u32 l2 = o->l3, gone = o->inner - o->l3;
	__u8 b[24];

	if (l2 == 14) {
		if (bpf_xdp_load_bytes(ctx, 0, b, 14))
			return -1;
	} else if (l2 == 18) {
		if (bpf_xdp_load_bytes(ctx, 0, b, 18))
			return -1;
	} else {
		l2 = 22;
		if (bpf_xdp_load_bytes(ctx, 0, b, 22))
			return -1;
	}
	if (gone > 60 || bpf_xdp_adjust_head(ctx, gone))
		return -1;
	if (l2 == 14) {
		__builtin_memcpy(b + 12, &type, 2);
		return bpf_xdp_store_bytes(ctx, 0, b, 14);
	}
	if (l2 == 18) {
		__builtin_memcpy(b + 16, &type, 2);
		return bpf_xdp_store_bytes(ctx, 0, b, 18);
	}
	__builtin_memcpy(b + 20, &type, 2);
	return bpf_xdp_store_bytes(ctx, 0, b, 22);
}
