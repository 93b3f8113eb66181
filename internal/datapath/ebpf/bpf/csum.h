/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * csum.h: ones' complement sums (RFC 1071, RFC 1624), and the completion of
 * checksums that a local sender left to its network card (XDP on veth).
 */
#pragma once

#include "parse.h"

static __always_inline __u16 csum_fold(__u64 s)
{
	s = (s >> 32) + (s & 0xffffffff);
	s = (s >> 32) + (s & 0xffffffff);
	s = (s >> 16) + (s & 0xffff);
	s = (s >> 16) + (s & 0xffff);
	return s;
}

/* The change of a sum when old is replaced by new. */
static __always_inline __u64 csum_change(__u32 old, __u32 new) { return (__u64)(__u32)~old + new; }

static __always_inline __u64 csum_change_port(__u16 old, __u16 new) { return (__u64)(__u16)~old + new; }

static __always_inline __u64 csum_change_address(const __u32 *old, const __u32 *new, __u8 version)
{
	__u64 d = csum_change(old[3], new[3]);

	if (version == 6)
		d += csum_change(old[0], new[0]) + csum_change(old[1], new[1]) + csum_change(old[2], new[2]);
	return d;
}

static __always_inline __u16 csum_apply(__u16 check, __u64 change)
{
	return ~csum_fold(change + (__u16)~check);
}

static __always_inline __u64 csum_address(const __u32 *a, __u8 version)
{
	return version == 6 ? (__u64)a[0] + a[1] + a[2] + a[3] : a[3];
}

/* Where the checksum is in a transport header; -1: nowhere, or it covers no address. */
static __always_inline int csum_offset(__u8 proto, __u8 version)
{
	switch (proto) {
	case P_TCP:
		return 16;
	case P_UDP:
		return 6;
	case P_ICMPV6:
		return version == 6 ? 2 : -1;
	}
	return -1;
}

enum { SUM_STEP = 128, SUM_STEPS = 512 };

/* What of the packet is to be summed, and the sum so far. */
struct csum_rest {
	ctx_t *ctx;
	__u32 at, end;
	__s64 sum;
};

static long csum_step(__u32 i, struct csum_rest *r)
{
	__u32 words[SUM_STEP / 4] = {};
	__u32 n = r->end - r->at;

	if (r->at >= r->end)
		return 1;
	if (n >= SUM_STEP) {
		if (ctx_load(r->ctx, r->at, words, SUM_STEP))
			return 1;
	} else {
		barrier_var(n); /* the compiler knows the bounds, the kernel does not */
		if (n < 1 || n >= SUM_STEP || ctx_load(r->ctx, r->at, words, n))
			return 1;
	}
	r->sum = bpf_csum_diff(NULL, 0, words, SUM_STEP, r->sum);
	r->at += SUM_STEP;
	return 0;
}

/* Sums the packet from at to end. */
__noinline __u64 csum_range(ctx_t *ctx, __u32 at, __u32 end)
{
	struct csum_rest r = {.ctx = ctx, .at = at, .end = end};

	bpf_loop(SUM_STEPS, csum_step, &r, 0);
	return r.sum;
}

/* Where the transport checksum is, if there is one that a local sender may have
 * left to the card. */
static __always_inline __u32 csum_at(const struct pkt *p)
{
	if (!ctx_must_complete || !params.partial || p->first || p->later || p->cut)
		return 0;
	if (p->kind != KIND_TCP && p->kind != KIND_UDP)
		return 0;
	return (p->l4 & MAX_HEADERS) + (p->kind == KIND_TCP ? 16 : 6);
}

/* Notes whether the checksum holds the sum of the pseudo-header only: then it
 * was to be finished by the card. One in 65,536 finished ones looks the same. */
static __always_inline void csum_note(ctx_t *ctx, struct pkt *p)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx);
	__u32 at = csum_at(p);
	__u16 *field = data + at;
	__u64 pseudo;

	if (!at || (void *)(field + 1) > end)
		return;
	pseudo = csum_address(p->key.src, p->version) + csum_address(p->key.dst, p->version) +
		 bpf_htons(p->proto) + bpf_htons(p->end - p->l4);
	p->partial = *field == csum_fold(pseudo);
}

/* Finishes such a checksum; a finished one gets the value that it has. */
static __always_inline void csum_complete(ctx_t *ctx, struct pkt *p)
{
	void *data, *end;
	__u16 *field, sum;

	csum_note(ctx, p);
	if (!p->partial)
		return;
	p->partial = 0;
	sum = ~csum_fold(csum_range(ctx, p->l4, p->end));
	data = ctx_data(ctx);
	end = ctx_end(ctx);
	field = data + csum_at(p);
	if ((void *)(field + 1) > end)
		return;
	*field = p->kind == KIND_UDP && !sum ? 0xffff : sum;
}
