/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * tunnel.h: takes the tunnel of L3-DSR off: IPv4 and IPv6 in either (RFC 2003,
 * 2473, 4213) and in UDP (GUE variant 1). Only tunnels that end here, from an
 * allowed source, are opened; ECN is combined as RFC 6040 asks; everything else
 * is passed as it came. Who includes this file defines ctx_t, the ctx_
 * functions, tunnel_ours and tunnel_allowed.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Names of counters, read by user space from BTF: DECAP_X is x. */
enum decap_end {
	DECAP_NOT_TUNNEL,     /* passed: no tunnel of ours */
	DECAP_NOT_LOCAL,      /* passed: to an address of another machine */
	DECAP_OUTER_FRAGMENT, /* passed: the stack may put it together */
	DECAP_IPIP,           /* opened */
	DECAP_GUE,            /* opened */
	DECAP_REFUSED,        /* dropped: from a source that is not allowed */
	DECAP_MALFORMED,      /* dropped */
	DECAP_CONGESTED,      /* dropped: congestion marked, the inner flow cannot say so */
	DECAP_FAILED,         /* dropped: no room to move the frame */
	DECAP_END,
};

enum { T_IPIP = 4, T_IPV6 = 41, T_UDP = 17, T_DEST = 60, T_GUE_PORT = 6080 };

/* A tunnelled packet; offsets from the start of the frame. */
struct opening {
	__u8 from[16], to[16]; /* outer addresses; IPv4 is mapped */
	__u32 l3, inner;  /* where the outer and the inner IP headers begin */
	__u32 room;       /* bytes of the outer packet from inner on */
	__u8 version;     /* of the outer header */
	__u8 ecn;
	__u8 end;         /* decap_end */
	__u8 generation;  /* for tunnel_ours and tunnel_allowed */
};

/* Whether a tunnel to o->to ends on this machine, and whether o->from may send through it. */
static __always_inline bool tunnel_ours(const struct opening *o);
static __always_inline bool tunnel_allowed(const struct opening *o);

static __always_inline void mapped(__u8 *to, const __u8 *four)
{
	to[10] = to[11] = 0xff;
	__builtin_memcpy(to + 12, four, 4);
}

/* The header behind the outer IP header: of type proto, at o->inner. */
static __always_inline int outer_next(ctx_t *ctx, struct opening *o, __u8 proto, __u32 end)
{
	__u8 b[8];

	if (proto == T_DEST && o->version == 6) { /* ip6tnl's encapsulation limit */
		if (ctx_load(ctx, o->inner, b, 8))
			return DECAP_MALFORMED;
		proto = b[0];
		if (proto != T_IPIP && proto != T_IPV6)
			return DECAP_NOT_TUNNEL;
		if (b[1])
			return DECAP_MALFORMED;
		o->inner += 8;
	}
	if (proto == T_UDP) {
		if (end < o->inner + 8)
			return DECAP_NOT_TUNNEL;
		if (ctx_load(ctx, o->inner, b, 8) || b[2] != T_GUE_PORT >> 8 || b[3] != (T_GUE_PORT & 255))
			return DECAP_NOT_TUNNEL;
		if (((__u32)b[4] << 8 | b[5]) > end - o->inner)
			return DECAP_MALFORMED;
		o->inner += 8;
		o->end = DECAP_GUE;
	} else if (proto == T_IPIP || proto == T_IPV6) {
		o->end = DECAP_IPIP;
	} else {
		return DECAP_NOT_TUNNEL;
	}
	if (o->inner >= end)
		return DECAP_MALFORMED;
	o->room = end - o->inner;
	/* A protocol number and the version it stands for must agree. */
	if (ctx_load(ctx, o->inner, b, 1) || (b[0] >> 4 != 4 && b[0] >> 4 != 6))
		return DECAP_MALFORMED;
	if (proto != T_UDP && (b[0] >> 4 == 4) != (proto == T_IPIP))
		return DECAP_MALFORMED;
	return o->end;
}

/* Reads the outer headers. Returns DECAP_IPIP or DECAP_GUE if it is a tunnel. */
__noinline int outer_read(ctx_t *ctx, struct opening *o)
{
	__u8 b[40];
	__u16 type;
	__u32 end, len = ctx_len(ctx);

	if (!o || ctx_load(ctx, 12, &type, 2))
		return DECAP_NOT_TUNNEL;
	o->l3 = 14;
	for (int i = 0; i < 2; i++) {
		if (type != bpf_htons(0x8100) && type != bpf_htons(0x88a8))
			break;
		if (ctx_load(ctx, o->l3 + 2, &type, 2))
			return DECAP_NOT_TUNNEL;
		o->l3 += 4;
	}
	if (type == bpf_htons(0x0800)) {
		__u32 sum = 0;

		if (ctx_load(ctx, o->l3, b, 20) || b[0] != 0x45)
			return DECAP_NOT_TUNNEL;
		if (b[9] != T_IPIP && b[9] != T_IPV6 && b[9] != T_UDP)
			return DECAP_NOT_TUNNEL;
		if ((b[6] & 0x3f) | b[7])
			return b[9] == T_UDP ? DECAP_NOT_TUNNEL : DECAP_OUTER_FRAGMENT;
		for (int i = 0; i < 20; i += 2)
			sum += (__u32)b[i] << 8 | b[i + 1];
		sum = (sum >> 16) + (sum & 0xffff);
		sum = (sum >> 16) + (sum & 0xffff);
		if (sum != 0xffff)
			return DECAP_NOT_TUNNEL; /* the stack drops and counts it */
		end = o->l3 + ((__u32)b[2] << 8 | b[3]);
		if (end > len)
			return DECAP_NOT_TUNNEL;
		o->version = 4;
		o->ecn = b[1] & 3;
		mapped(o->from, b + 12);
		mapped(o->to, b + 16);
		o->inner = o->l3 + 20;
		return outer_next(ctx, o, b[9], end);
	}
	if (type == bpf_htons(0x86dd)) {
		if (ctx_load(ctx, o->l3, b, 40) || b[0] >> 4 != 6)
			return DECAP_NOT_TUNNEL;
		end = o->l3 + 40 + ((__u32)b[4] << 8 | b[5]);
		if (end > len)
			return DECAP_NOT_TUNNEL;
		o->version = 6;
		o->ecn = b[1] >> 4 & 3;
		__builtin_memcpy(o->from, b + 8, 16);
		__builtin_memcpy(o->to, b + 24, 16);
		o->inner = o->l3 + 40;
		return outer_next(ctx, o, b[6], end);
	}
	return DECAP_NOT_TUNNEL;
}

/* Checks the inner header and brings the outer congestion mark into it. */
__noinline int inner_check(ctx_t *ctx, struct opening *o)
{
	__u8 b[20];
	__u32 size;

	if (!o || ctx_load(ctx, o->inner, b, 20))
		return DECAP_MALFORMED;
	if (b[0] >> 4 == 4) {
		size = (__u32)b[2] << 8 | b[3];
		if ((b[0] & 15) < 5 || size < (b[0] & 15u) * 4 || size > o->room)
			return DECAP_MALFORMED;
		if (o->ecn != 3 || (b[1] & 3) == 3)
			return o->end;
		if (!(b[1] & 3))
			return DECAP_CONGESTED;
		/* RFC 1624: the checksum falls by what the word gains. */
		__u32 gain = 3 - (b[1] & 3), sum = ((__u32)b[10] << 8 | b[11]) + 0xffff - gain;

		sum = (sum >> 16) + (sum & 0xffff);
		b[1] |= 3;
		b[10] = sum >> 8;
		b[11] = sum;
		return ctx_store(ctx, o->inner, b, 12) ? DECAP_FAILED : o->end;
	}
	size = 40 + ((__u32)b[4] << 8 | b[5]);
	if (o->room < 40 || size > o->room)
		return DECAP_MALFORMED;
	if (o->ecn != 3 || (b[1] >> 4 & 3) == 3)
		return o->end;
	if (!(b[1] >> 4 & 3))
		return DECAP_CONGESTED;
	b[1] |= 0x30;
	return ctx_store(ctx, o->inner, b, 4) ? DECAP_FAILED : o->end;
}

/* Takes the tunnel off. Returns DECAP_IPIP or DECAP_GUE if it did. */
static __always_inline int tunnel_open(ctx_t *ctx, struct opening *o)
{
	__u8 version = 0;
	__u16 type;
	int end;

	end = outer_read(ctx, o);
	if (end != DECAP_IPIP && end != DECAP_GUE && end != DECAP_MALFORMED)
		return end;
	if (!tunnel_ours(o))
		return DECAP_NOT_LOCAL;
	if (!tunnel_allowed(o))
		return DECAP_REFUSED;
	if (end == DECAP_MALFORMED)
		return end;
	end = inner_check(ctx, o);
	if (end != DECAP_IPIP && end != DECAP_GUE)
		return end;
	ctx_load(ctx, o->inner, &version, 1);
	type = version >> 4 == 4 ? bpf_htons(0x0800) : bpf_htons(0x86dd);
	return ctx_strip(ctx, o, type) ? DECAP_FAILED : end;
}
