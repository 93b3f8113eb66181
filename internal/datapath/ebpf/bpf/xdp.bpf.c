//go:build ignore

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * xdp.bpf.c: the core on the XDP hook: first thing after the driver, frames as
 * on the wire, no segmentation offload.
 */
#include "maps.h"
#include "xdp_ctx.h"

/* Opens n bytes behind a link header of l2 bytes. */
static __always_inline long ctx_insert(ctx_t *ctx, __u32 l2, __u32 n, __u64 flags)
{
	__u8 b[24];

	l2 &= 31;
	if (l2 < 14 || l2 > 22 || bpf_xdp_adjust_head(ctx, -(int)n))
		return -1;
	if (bpf_xdp_load_bytes(ctx, n, b, l2))
		return -1;
	return bpf_xdp_store_bytes(ctx, 0, b, l2);
}

/* The same where link addresses are about to be written. */
static __always_inline long ctx_open(ctx_t *ctx, __u32 l2, __u32 n, __u64 flags)
{
	__u16 *to, *from;
	__u16 type;

	if (l2 != 14)
		return ctx_insert(ctx, l2, n, flags);
	from = ctx_data(ctx) + 12;
	if ((void *)(from + 1) > ctx_end(ctx))
		return -1;
	type = *from;
	if (bpf_xdp_adjust_head(ctx, -(int)n))
		return -1;
	to = ctx_data(ctx) + 12;
	if ((void *)(to + 1) > ctx_end(ctx))
		return -1;
	*to = type;
	return 0;
}

static __always_inline long ctx_truncate(ctx_t *ctx, __u32 len)
{
	__u32 now = bpf_xdp_get_buff_len(ctx);

	return len > now ? -1 : bpf_xdp_adjust_tail(ctx, (int)(len - now));
}

static __always_inline __u64 ctx_encap_flags(__u8 family, __u8 udp, __u8 fixed) { return 0; }

static __always_inline bool ctx_retunnel(ctx_t *ctx, __u8 came, __u8 goes) { return true; }

/* There is no skb yet to mark: caps leave mode mark out on this hook. */
static __always_inline int ctx_mark(ctx_t *ctx, __u32 mark) { return XDP_PASS; }

#include "xdp_access.h"
#include "xdp_strip.h"
#include "core.h"

SEC("xdp")
int weir_xdp(struct xdp_md *ctx) { return weir(ctx, false); }

SEC("xdp.frags")
int weir_xdp_jumbo(struct xdp_md *ctx) { return weir(ctx, false); }

char __license[] SEC("license") = "Dual BSD/GPL";
