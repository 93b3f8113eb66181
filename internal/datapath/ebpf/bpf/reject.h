/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * reject.h: answers a packet of a share that is refused: TCP with a reset (RFC 9293,
 * 3.10.7.1), the rest with an ICMP error, port unreachable (RFC 792, RFC 4443, 3.1).
 * Neither is an answer to an answer: resets and ICMP errors get none.
 */
#pragma once

#include "error.h"

enum { TCP_LEN = 20 };

struct reset {
	union {
		__u8 b[IP6_LEN + TCP_LEN];
		__u16 h[30];
		__u32 w[15];
	};
};

struct tcp_numbers {
	__u16 sport, dport; /* network order */
	__u32 seq, ack;
};

/* Writes the TCP header of a reset at h and returns its sum, without checksum. */
static __always_inline __u64 reset_tcp(const struct pkt *p, const struct tcp_numbers *in, __u32 *w)
{
	__u32 length = p->end - p->payload + !!(p->tcp_flags & FLAG_SYN) + !!(p->tcp_flags & FLAG_FIN);
	__u8 flags = FLAG_RST;

	w[0] = in->dport | (__u32)in->sport << 16;
	if (p->tcp_flags & FLAG_ACK) {
		w[1] = in->ack;
	} else {
		w[2] = bpf_htonl(bpf_ntohl(in->seq) + length);
		flags |= FLAG_ACK;
	}
	w[3] = TCP_LEN << 2 | (__u32)flags << 8;
	return (__u64)w[0] + w[1] + w[2] + w[3];
}

/* The window and the checksum of a reset. A card, or what stands for one, may still
 * finish the checksum of the packet that the frame was, which is in the same place: it adds
 * what is behind the pseudo-header. No one reads a reset's window, so it is chosen such
 * that the checksum is the sum of the pseudo-header, which is right for both. */
static __always_inline void reset_sums(struct reset *r, __u32 tcp, __u64 pseudo, __u64 rest)
{
	__u16 sum = csum_fold(pseudo);

	r->h[(tcp + 14) / 2] = ~csum_fold(rest + 2 * (__u64)sum);
	r->h[(tcp + 16) / 2] = sum;
}

__noinline int make_reset(ctx_t *ctx, struct pkt *p)
{
	struct tcp_numbers in;
	struct reset r = {};
	__u32 ip;
	__u64 rest, pseudo;
	__u8 macs[12];

	if (!p || p->tcp_flags & FLAG_RST || p->first || p->cut || ctx_load(ctx, 0, macs, 12) || macs[0] & 1)
		return 0;
	ip = p->version == 4 ? IP4_LEN : IP6_LEN;
	if (p->l4 != p->l3 + ip || p->payload > p->end || ctx_load(ctx, p->l4, &in, 12))
		return 0; /* with IP options or extension headers: no answer */
	pseudo = csum_address(p->key.src, p->version) + csum_address(p->key.dst, p->version) + bpf_htons(P_TCP) + bpf_htons(TCP_LEN);
	if (ctx_truncate(ctx, p->l3 + ip + TCP_LEN))
		return 0;
	ctx_store(ctx, 0, macs + 6, 6);
	ctx_store(ctx, 6, macs, 6);
	if (p->version == 4) {
		rest = reset_tcp(p, &in, &r.w[5]);
		reset_sums(&r, IP4_LEN, pseudo, rest);
		r.b[0] = 0x45;
		r.h[1] = bpf_htons(IP4_LEN + TCP_LEN);
		r.h[3] = bpf_htons(0x4000);
		r.b[8] = 64;
		r.b[9] = P_TCP;
		r.w[3] = p->key.dst[3];
		r.w[4] = p->key.src[3];
		r.h[5] = ~csum_fold((__u64)r.w[0] + r.w[1] + r.w[2] + r.w[3] + r.w[4]);
		return !ctx_store(ctx, p->l3, r.b, IP4_LEN + TCP_LEN);
	}
	rest = reset_tcp(p, &in, &r.w[10]);
	reset_sums(&r, IP6_LEN, pseudo, rest);
	r.b[0] = 0x60;
	r.h[2] = bpf_htons(TCP_LEN);
	r.b[6] = P_TCP;
	r.b[7] = 64;
	__builtin_memcpy(&r.w[2], p->key.dst, 16);
	__builtin_memcpy(&r.w[6], p->key.src, 16);
	return !ctx_store(ctx, p->l3, r.b, IP6_LEN + TCP_LEN);
}

/* What becomes of the packet: the hook's verdict. */
__noinline int reject(ctx_t *ctx, struct pkt *p)
{
	int answered;

	if (!p)
		return ctx_drop;
	if (p->kind == KIND_TCP) {
		answered = has_sender(p) && make_reset(ctx, p);
	} else {
		if (p->kind == KIND_ECHO || !error_allowed(p, RATE_HOPS))
			return ctx_drop;
		__builtin_memcpy(p->from, p->key.dst, 16);
		answered = make_error(ctx, p, ERROR_PORT);
	}
	return answered ? ctx_redirect(ctx, p, ctx_ifindex(ctx)) : ctx_drop;
}
