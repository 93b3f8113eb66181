//go:build ignore

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * turn_tcx.bpf.c: the relay on the TCX ingress hook. User data moves and the
 * headers stay where they are: a checksum that a local sender left to the card is
 * finished from a place that no program can move.
 */
#include "tcx_ctx.h"

#include "turn_ctx.h"
#include "tcx_pull.h"

enum { ctx_picks_outs = 0, LOOPBACK = 1, MAX_DATA = 9216 };

/* Tags belong to an interface of their own; what a bridge sees of others is theirs. */
static __always_inline bool ctx_ours(ctx_t *ctx) { return !ctx->vlan_present && !ctx->pkt_type; }

static __always_inline bool ctx_segments(ctx_t *ctx) { return ctx->gso_size; }

/* Packets on lo have their route to this machine already; from elsewhere its own source is refused. */
static __always_inline bool ctx_delivers(ctx_t *ctx) { return ctx->ifindex == LOOPBACK; }

#include "turn.h"

/* User data on its entry, behind a channel's header. */
struct turn_data {
	__u32 channel;
	__u8 data[MAX_DATA];
};

MAP(PERCPU_ARRAY, turn_data, __u32, struct turn_data, 1, 0);

static __always_inline __u32 fold32(__u64 sum)
{
	sum = (sum >> 32) + (sum & 0xffffffff);
	return (sum >> 32) + (sum & 0xffffffff);
}

/* Brings the checksum up to date; one that the card will finish holds the pseudo-header only. */
static __always_inline bool put_check(ctx_t *ctx, __u32 at, const struct relay *r)
{
	__u32 pseudo = fold32(r->pseudo), change = fold32(r->change);

	return !(pseudo && bpf_l4_csum_replace(ctx, at, 0, pseudo, BPF_F_MARK_MANGLED_0 | BPF_F_PSEUDO_HDR)) &&
	       !(change && bpf_l4_csum_replace(ctx, at, 0, change, BPF_F_MARK_MANGLED_0));
}

/* Puts user data behind the headers, with the channel's in front on the path down. */
static __always_inline bool put_data(ctx_t *ctx, __u32 at, const struct relay *r, struct turn_data *d)
{
	__u32 n = r->bytes;

	barrier_var(n);
	if (n > MAX_DATA)
		return false;
	if (r->up)
		return !(n && bpf_skb_store_bytes(ctx, at, d->data, n, 0)) && !bpf_skb_change_tail(ctx, at + n, 0);
	d->channel = r->channel;
	return !bpf_skb_change_tail(ctx, at + CHANNEL_LEN + n, 0) && !bpf_skb_store_bytes(ctx, at, d, CHANNEL_LEN + n, 0);
}

static __always_inline int ctx_shift(ctx_t *ctx, struct pkt *p, const struct relay_entry *entry, const struct relay *r,
				     const struct out *out)
{
	__u32 l4 = ETH_LEN + ip_len(entry->version), n = r->bytes, zero = 0;
	struct turn_data *d = bpf_map_lookup_elem(&turn_data, &zero);

	if (!d || bpf_skb_pull_data(ctx, p->len))
		return TURN_NO_ROOM;
	barrier_var(n);
	if (n > MAX_DATA || (n && bpf_skb_load_bytes(ctx, r->data, d->data, n)))
		return TURN_NO_ROOM;
	if (entry->version != p->version && bpf_skb_change_proto(ctx, entry->version == 4 ? bpf_htons(0x0800) : bpf_htons(0x86dd), 0))
		return TURN_FAILED;
	if (!put_data(ctx, l4 + UDP_LEN, r, d) || !put_check(ctx, l4 + 6, r) || !turn_head(ctx, p, entry, r, out))
		return TURN_FAILED;
	return 0;
}

SEC("tcx/ingress")
int weir_turn_tcx(struct __sk_buff *ctx) { return turn(ctx); }

char __license[] SEC("license") = "Dual BSD/GPL";
