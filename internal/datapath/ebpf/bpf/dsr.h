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

/* Traffic class of a packet whose first bytes these are. */
static __always_inline __u8 class_of(__u16 head, __u8 version)
{
	return version == 6 ? (head & 0xf) << 4 | (head >> 12 & 0xf) : head >> 8;
}

/* Puts the packet into its backend's tunnel; its link addresses are lost.
 * fixed: segments fit as they are. */
static __always_inline bool tunnel(ctx_t *ctx, struct pkt *p, const struct service *service, const struct backend *b,
				   bool fixed)
{
	__u32 payload = p->end - p->l3, size = tunnel_overhead(service, b), at = p->l3 & 31;
	bool gue = service->tunnel == TUNNEL_GUE, is6 = b->family == 6;
	__u8 next = gue ? P_UDP : p->version == 4 ? 4 : 41, class;
	void *ip = ctx_data(ctx) + at, *end = ctx_end(ctx);
	__u16 *udp;

	if (gue)
		payload += UDP_LEN;
	if (p->came && !ctx_retunnel(ctx, p->came, gue ? CAME_GUE : is6 ? CAME_IPIP6 : CAME_IPIP4))
		return false;
	if (ip + 2 > end || payload + (is6 ? 0 : IP4_LEN) > 65535)
		return false;
	class = class_of(*(__u16 *)ip, p->version);
	if (ctx_open(ctx, at, size, ctx_encap_flags(b->family, gue, fixed)))
		return false;
	ip = ctx_data(ctx) + at;
	end = ctx_end(ctx);
	if (is6) {
		__u32 *w = ip;

		if (ip + IP6_LEN > end)
			return false;
		w[0] = 0x60 | class >> 4 | (class & 0xf) << 12;
		w[1] = bpf_htons(payload) | (__u32)next << 16 | (__u32)TUNNEL_TTL << 24;
		copy16(w + 2, service->outer6);
		copy16(w + 6, b->addr);
		udp = ip + IP6_LEN;
	} else {
		__u32 *w = ip, head = 0x45 | (__u32)class << 8 | (__u32)bpf_htons(IP4_LEN + payload) << 16;
		__u32 fragment = (__u32)bpf_htons(0x4000) << 16, third = TUNNEL_TTL | (__u32)next << 8;
		__u16 check = ~csum_fold((__u64)head + fragment + third + service->outer4 + b->addr[3]);

		if (ip + IP4_LEN > end)
			return false;
		w[0] = head;
		w[1] = fragment;
		w[2] = third | (__u32)check << 16;
		w[3] = service->outer4;
		w[4] = b->addr[3];
		udp = ip + IP4_LEN;
	}
	if (gue) {
		if ((void *)(udp + 4) > end)
			return false;
		udp[1] = bpf_htons(GUE_PORT);
		udp[2] = bpf_htons(payload);
		udp[3] = 0;
		udp[0] = bpf_htons(0xc000 | (flow_hash(p) & 0x3fff));
	}
	if (b->family != p->version) {
		__u16 *type = ctx_data(ctx) + (at - 2);

		if (at < ETH_LEN || (void *)(type + 1) > ctx_end(ctx))
			return false;
		*type = is6 ? bpf_htons(0x86dd) : bpf_htons(0x0800);
	}
	return true;
}
