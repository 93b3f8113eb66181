//go:build ignore

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * turn_xdp.bpf.c: the relay on the XDP hook. The frame's start moves, user data
 * stays where it is.
 */
#include "xdp_ctx.h"

#include "turn_ctx.h"

enum { ctx_picks_outs = 1 };

static __always_inline bool ctx_pull(ctx_t *ctx, const struct pkt *p) { return false; }

/* A card hands over what is for its own address, and groups. */
static __always_inline bool ctx_ours(ctx_t *ctx)
{
	__u8 *data = ctx_data(ctx);

	return (void *)(data + 1) <= ctx_end(ctx) && !(*data & 1);
}

static __always_inline bool ctx_segments(ctx_t *ctx) { return false; }

static __always_inline bool ctx_delivers(ctx_t *ctx) { return false; }

#include "turn.h"

/* Writes the checksum of a datagram at l4. One that was left to the card is made again. */
static __always_inline bool put_check(ctx_t *ctx, const struct pkt *p, const struct relay_entry *entry, const struct relay *r,
				      __u16 check)
{
	__u32 l4 = ETH_LEN + ip_len(entry->version);
	__u16 *field, new = 0;

	if (p->partial) {
		__u16 pseudo = csum_fold(csum_address(entry->src, entry->version) + csum_address(entry->dst, entry->version) +
					 bpf_htons(P_UDP) + bpf_htons(r->length));

		field = ctx_data(ctx) + l4 + 6;
		if ((void *)(field + 1) > ctx_end(ctx))
			return false;
		*field = pseudo;
		new = ~csum_fold(csum_range(ctx, l4, l4 + r->length));
	} else if (check) {
		new = csum_apply(check, r->change + r->pseudo);
	}
	field = ctx_data(ctx) + l4 + 6;
	if ((void *)(field + 1) > ctx_end(ctx))
		return false;
	*field = (p->partial || check) && !new ? 0xffff : new;
	return true;
}

static __always_inline int ctx_shift(ctx_t *ctx, struct pkt *p, const struct relay_entry *entry, const struct relay *r,
				     const struct out *out)
{
	__u32 before = ip_len(p->version) + (r->up ? CHANNEL_LEN : 0), after = ip_len(entry->version) + (r->up ? 0 : CHANNEL_LEN);
	__u32 behind = p->len - (r->data + r->bytes);
	__u16 *field, check;

	csum_note(ctx, p);
	field = ctx_data(ctx) + ETH_LEN + ip_len(p->version) + 6;
	if ((void *)(field + 1) > ctx_end(ctx))
		return TURN_UNSUITED;
	check = *field;
	if (bpf_xdp_adjust_head(ctx, (int)(before - after)))
		return TURN_NO_ROOM;
	if (!turn_head(ctx, p, entry, r, out))
		return TURN_FAILED;
	if (!r->up) {
		__u32 *channel = ctx_data(ctx) + ETH_LEN + ip_len(entry->version) + UDP_LEN;

		if ((void *)(channel + 1) > ctx_end(ctx))
			return TURN_FAILED;
		*channel = r->channel;
	}
	if (behind && bpf_xdp_adjust_tail(ctx, -(int)behind))
		return TURN_FAILED;
	return put_check(ctx, p, entry, r, check) ? 0 : TURN_FAILED;
}

SEC("xdp")
int weir_turn_xdp(struct xdp_md *ctx) { return turn(ctx); }

SEC("xdp.frags")
int weir_turn_jumbo(struct xdp_md *ctx) { return turn(ctx); }

char __license[] SEC("license") = "Dual BSD/GPL";
