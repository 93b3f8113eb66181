//go:build ignore

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * decap_xdp.bpf.c: the end of L3-DSR tunnels on the XDP hook.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

typedef struct xdp_md ctx_t;

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

#include "xdp_strip.h"
#include "decap.h"

SEC("xdp.frags")
int weir_decap_xdp(struct xdp_md *ctx) { return decap(ctx); }

char __license[] SEC("license") = "Dual BSD/GPL";
