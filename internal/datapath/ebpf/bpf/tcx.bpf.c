//go:build ignore

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * tcx.bpf.c: the core on the TCX ingress hook: after GRO, before the stack, so
 * large segments and checksums left to the card travel on as they are.
 */
#include "maps.h"
#include "tcx_ctx.h"

enum { ALREADY = -114 }; /* -EALREADY */

/* Opens n bytes behind the link header. A packet whose tunnel was taken off here may still be marked as in one by
 * whom it came from (GRO, a sender on this machine), and is not marked again. */
static __always_inline long ctx_insert(ctx_t *ctx, __u32 l2, __u32 n, __u64 flags)
{
	long failed = bpf_skb_adjust_room(ctx, n, BPF_ADJ_ROOM_MAC, flags);

	if (failed == ALREADY)
		failed = bpf_skb_adjust_room(ctx, n, BPF_ADJ_ROOM_MAC, flags & BPF_F_ADJ_ROOM_FIXED_GSO);
	return failed;
}

static __always_inline long ctx_open(ctx_t *ctx, __u32 l2, __u32 n, __u64 flags) { return ctx_insert(ctx, l2, n, flags); }

static __always_inline long ctx_truncate(ctx_t *ctx, __u32 len) { return bpf_skb_change_tail(ctx, len, 0); }

static __always_inline __u64 ctx_encap_flags(__u8 family, __u8 udp, __u8 fixed)
{
	return (family == 6 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4) |
	       (udp ? BPF_F_ADJ_ROOM_ENCAP_L4_UDP : 0) | (fixed ? BPF_F_ADJ_ROOM_FIXED_GSO : 0);
}

/* The kernel still divides a large segment as in the tunnel that it came in, and loses it in one of another kind. */
static __always_inline bool ctx_retunnel(ctx_t *ctx, __u8 came, __u8 goes) { return came == goes || !ctx->gso_size; }

static __always_inline int ctx_mark(ctx_t *ctx, __u32 mark)
{
	ctx->mark = mark;
	return ctx_pass;
}

#include "tcx_access.h"
#include "tcx_strip.h"
#include "core.h"

SEC("tcx/ingress")
int weir_tcx(struct __sk_buff *ctx) { return weir(ctx, false); }

/* Run by BPF_PROG_TEST_RUN for fragments that waited in user space: sends the
 * frame by itself, for no program carries out a verdict there. */
SEC("tcx/ingress")
int weir_inject(struct __sk_buff *ctx)
{
	int verdict = weir(ctx, true);

	if (verdict == ctx_pass)
		bpf_clone_redirect(ctx, ctx->ifindex, BPF_F_INGRESS);
	return verdict;
}

char __license[] SEC("license") = "Dual BSD/GPL";
