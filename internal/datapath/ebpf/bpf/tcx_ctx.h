/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * tcx_ctx.h: what every program on the TCX hook calls its packet by.
 */
#pragma once

#include "params.h"

typedef struct __sk_buff ctx_t;

enum { ctx_pass = -1 /* TCX_NEXT */, ctx_drop = 2 /* TCX_DROP */ };
enum { ctx_can_pull = 1, ctx_must_complete = 0 };

static __always_inline void *ctx_data(ctx_t *ctx) { return (void *)(long)ctx->data; }
static __always_inline void *ctx_end(ctx_t *ctx) { return (void *)(long)ctx->data_end; }
static __always_inline __u32 ctx_ifindex(ctx_t *ctx) { return ctx->ifindex; }
static __always_inline __u32 ctx_len(ctx_t *ctx) { return ctx->len; }

static __always_inline long ctx_load(ctx_t *ctx, __u32 at, void *to, __u32 n)
{
	return bpf_skb_load_bytes(ctx, at, to, n);
}

static __always_inline long ctx_store(ctx_t *ctx, __u32 at, const void *from, __u32 n)
{
	return bpf_skb_store_bytes(ctx, at, from, n, 0);
}
