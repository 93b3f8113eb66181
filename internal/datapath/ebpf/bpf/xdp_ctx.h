/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * xdp_ctx.h: what every program on the XDP hook calls its packet by.
 */
#pragma once

#include "params.h"

typedef struct xdp_md ctx_t;

enum { ctx_pass = XDP_PASS, ctx_drop = XDP_DROP };
enum { ctx_can_pull = 0, ctx_must_complete = 1 };

static __always_inline void *ctx_data(ctx_t *ctx) { return (void *)(long)ctx->data; }
static __always_inline void *ctx_end(ctx_t *ctx) { return (void *)(long)ctx->data_end; }
static __always_inline __u32 ctx_ifindex(ctx_t *ctx) { return ctx->ingress_ifindex; }
static __always_inline __u32 ctx_len(ctx_t *ctx) { return params.jumbo ? bpf_xdp_get_buff_len(ctx) : ctx->data_end - ctx->data; }

static __always_inline long ctx_load(ctx_t *ctx, __u32 at, void *to, __u32 n)
{
	return bpf_xdp_load_bytes(ctx, at, to, n);
}

static __always_inline long ctx_store(ctx_t *ctx, __u32 at, const void *from, __u32 n)
{
	return bpf_xdp_store_bytes(ctx, at, (void *)from, n);
}
