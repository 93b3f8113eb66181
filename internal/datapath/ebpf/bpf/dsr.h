/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * dsr.h: L3-DSR, an outer IP header of either family around the packet (RFC
 * 2003, RFC 2473, RFC 4213), or UDP between the two (GUE variant 1). DSCP and
 * ECN are copied out, the outer IPv4 header has DF and id 0.
 */
#pragma once

#include "csum.h"
#include "conntrack.h"

enum { GUE_PORT = 6080, TUNNEL_TTL = 64 };

static __always_inline __u32 tunnel_overhead(const struct service *s, const struct backend *b)
{
	if (s->mode != MODE_L3DSR)
		return 0;
	return (b->family == 6 ? IP6_LEN : IP4_LEN) + (s->tunnel == TUNNEL_GUE ? UDP_LEN : 0);
}

/* The tunnel of one packet. */
struct outer {
	__u32 src[4], dst[4];
	__u32 length; /* of the inner packet */
	__u8 family;
	__u8 gue;
	__u8 fixed;   /* segments fit as they are */
	__u8 pad;
};

/* Wraps the packet. Returns 1 if that worked. */
__noinline int encapsulate(ctx_t *ctx, struct pkt *p, struct outer *o)
{
	union {
		__u8 b[IP6_LEN + UDP_LEN];
		__u16 h[24];
		__u32 w[12];
	} e = {};
	__u32 size, payload, at;
	__u8 class[2], next;
	__u16 type;

	if (!p || !o || ctx_load(ctx, p->l3, class, 2))
		return 0;
	if (p->version == 6)
		class[1] = class[0] << 4 | class[1] >> 4;
	payload = o->length + (o->gue ? UDP_LEN : 0);
	size = (o->family == 6 ? IP6_LEN : IP4_LEN) + (o->gue ? UDP_LEN : 0);
	if (payload + (o->family == 6 ? 0 : IP4_LEN) > 65535)
		return 0;
	if (ctx_insert(ctx, p->l3, size, ctx_encap_flags(o->family, o->gue, o->fixed)))
		return 0;
	next = o->gue ? P_UDP : p->version == 4 ? 4 : 41;
	if (o->family == 6) {
		e.b[0] = 0x60 | class[1] >> 4;
		e.b[1] = class[1] << 4;
		e.h[2] = bpf_htons(payload);
		e.b[6] = next;
		e.b[7] = TUNNEL_TTL;
		__builtin_memcpy(&e.w[2], o->src, 16);
		__builtin_memcpy(&e.w[6], o->dst, 16);
		at = IP6_LEN;
		type = bpf_htons(0x86dd);
	} else {
		e.b[0] = 0x45;
		e.b[1] = class[1];
		e.h[1] = bpf_htons(IP4_LEN + payload);
		e.h[3] = bpf_htons(0x4000);
		e.b[8] = TUNNEL_TTL;
		e.b[9] = next;
		e.w[3] = o->src[3];
		e.w[4] = o->dst[3];
		e.h[5] = ~csum_fold((__u64)e.w[0] + e.w[1] + e.w[2] + e.w[3] + e.w[4]);
		at = IP4_LEN;
		type = bpf_htons(0x0800);
	}
	ctx_store(ctx, p->l3 - 2, &type, 2);
	if (o->gue) {
		__u16 udp[4] = {};

		udp[0] = bpf_htons(0xc000 | (flow_hash(p) & 0x3fff));
		udp[1] = bpf_htons(GUE_PORT);
		udp[2] = bpf_htons(payload);
		if (ctx_store(ctx, p->l3 + at, udp, UDP_LEN))
			return 0;
	}
	if (o->family == 6)
		return !ctx_store(ctx, p->l3, e.b, IP6_LEN);
	return !ctx_store(ctx, p->l3, e.b, IP4_LEN);
}

/* Puts the packet into its backend's tunnel. fixed: segments fit as they are. */
__noinline int tunnel(ctx_t *ctx, struct pkt *p, int fixed)
{
	const struct service *service;
	const struct backend *b;
	struct outer o = {};

	if (!p)
		return 0;
	service = service_at(p, p->service);
	b = backend_at(p->slot, p->version);
	if (!service || !b)
		return 0;
	o.length = p->end - p->l3;
	o.family = b->family;
	o.gue = service->tunnel == TUNNEL_GUE;
	o.fixed = fixed;
	__builtin_memcpy(o.dst, b->addr, 16);
	if (b->family == 4)
		o.src[3] = service->outer4;
	else
		__builtin_memcpy(o.src, service->outer6, 16);
	return encapsulate(ctx, p, &o);
}
