//go:build ignore

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * decap_tcx.bpf.c: the end of L3-DSR tunnels on the TCX ingress hook, for
 * backends on the same machine as their clients: large segments stay whole.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

typedef struct __sk_buff ctx_t;

enum { ctx_pass = -1 /* TCX_NEXT */, ctx_drop = 2 /* TCX_DROP */ };

static __always_inline __u32 ctx_len(ctx_t *ctx) { return ctx->len; }

static __always_inline long ctx_load(ctx_t *ctx, __u32 at, void *to, __u32 n)
{
	return bpf_skb_load_bytes(ctx, at, to, n);
}

static __always_inline long ctx_store(ctx_t *ctx, __u32 at, const void *from, __u32 n)
{
	return bpf_skb_store_bytes(ctx, at, from, n, 0);
}

#include "tcx_strip.h"
#include "decap.h"

SEC("tcx/ingress")
int weir_decap_tcx(struct __sk_buff *ctx) { return decap(ctx); }

char __license[] SEC("license") = "Dual BSD/GPL";
