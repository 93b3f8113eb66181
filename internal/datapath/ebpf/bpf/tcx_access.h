/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * tcx_access.h: what the TCX front end does to a parsed packet.
 */
#pragma once

#include "csum.h"
#include "tcx_pull.h"

/* The IP length of the largest packet that leaves. */
static __always_inline __u32 ctx_segment(ctx_t *ctx, const struct pkt *p)
{
	if (!ctx->gso_size)
		return p->end - p->l3;
	return p->payload - p->l3 + ctx->gso_size;
}

/* Whether segments become smaller by themselves. */
static __always_inline bool ctx_shrinks(ctx_t *ctx, const struct pkt *p)
{
	return ctx->gso_size && p->kind == KIND_TCP;
}

/* Brings a transport checksum up to date; one that the card will finish holds
 * the addresses only. */
static __always_inline bool ctx_update_check(ctx_t *ctx, const struct pkt *p, __u32 at, __u64 addresses, __u64 ports)
{
	__u64 flags = p->proto == P_UDP ? BPF_F_MARK_MANGLED_0 : 0;

	addresses = (addresses >> 32) + (addresses & 0xffffffff);
	addresses = (addresses >> 32) + (addresses & 0xffffffff);
	if (addresses && bpf_l4_csum_replace(ctx, at, 0, addresses, flags | BPF_F_PSEUDO_HDR))
		return false;
	return !ports || !bpf_l4_csum_replace(ctx, at, 0, ports, flags);
}

static __always_inline int ctx_redirect(ctx_t *ctx, const struct pkt *p, __u32 ifindex)
{
	if (!p->inject)
		return bpf_redirect(ifindex, 0);
	bpf_clone_redirect(ctx, ifindex, 0);
	return ctx_drop;
}

/* The client's neighbour is not resolved: the kernel resolves it with this packet. */
static __always_inline int ctx_resolve(ctx_t *ctx, const struct pkt *p)
{
	return bpf_redirect_neigh(p->fib.ifindex, NULL, 0, 0);
}
