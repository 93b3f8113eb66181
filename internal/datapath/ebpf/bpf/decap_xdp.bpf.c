//go:build ignore

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * decap_xdp.bpf.c: the end of L3-DSR tunnels on the XDP hook.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

typedef struct xdp_md ctx_t;

struct opening;

enum { ctx_pass = XDP_PASS, ctx_drop = XDP_DROP };

static __always_inline __u32 ctx_len(ctx_t *ctx) { return bpf_xdp_get_buff_len(ctx); }

static __always_inline long ctx_load(ctx_t *ctx, __u32 at, void *to, __u32 n)
{
	return bpf_xdp_load_bytes(ctx, at, to, n);
}

static __always_inline long ctx_store(ctx_t *ctx, __u32 at, const void *from, __u32 n)
{
	return bpf_xdp_store_bytes(ctx, at, (void *)from, n);
}

static __always_inline long ctx_strip(ctx_t *ctx, struct opening *o, __u16 type);

#include "decap.h"

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

SEC("xdp.frags")
int weir_decap_xdp(struct xdp_md *ctx) { return decap(ctx); }

char __license[] SEC("license") = "Dual BSD/GPL";
