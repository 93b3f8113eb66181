/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * toobig.h: turns a packet that does not fit into an ICMP error for its
 * sender: fragmentation needed (RFC 1191) or packet too big (RFC 8201), from
 * the address that the packet was for. At most 1,000 a second.
 */
#pragma once

#include "csum.h"
#include "rate.h"

enum { QUOTE = 256, MAX_L2 = 22 };

struct error_header {
	union {
		__u8 b[IP6_LEN + ICMP_LEN];
		__u16 h[24];
		__u32 w[12];
	};
};

/* Returns 1 if the frame is now the error, to go back where it came from. */
__noinline int too_big(ctx_t *ctx, struct pkt *p, __u32 mtu)
{
	struct error_header e = {};
	__u32 l3, size;
	__u8 macs[12];
	__u64 sum;

	if (!p || p->end < p->l3 + QUOTE)
		return 0;
	l3 = p->l3;
	size = (p->version == 4 ? IP4_LEN : IP6_LEN) + ICMP_LEN;
	if (ctx_truncate(ctx, l3 + QUOTE) || ctx_insert(ctx, l3, size, 0))
		return 0;
	if (ctx_load(ctx, 0, macs, 12))
		return 0;
	ctx_store(ctx, 0, macs + 6, 6);
	ctx_store(ctx, 6, macs, 6);
	sum = csum_range(ctx, l3 + size, l3 + size + QUOTE);
	if (p->version == 4) {
		e.b[0] = 0x45;
		e.h[1] = bpf_htons(IP4_LEN + ICMP_LEN + QUOTE);
		e.b[8] = 64;
		e.b[9] = P_ICMP;
		ctx_load(ctx, l3 + size + 16, &e.w[3], 4);
		ctx_load(ctx, l3 + size + 12, &e.w[4], 4);
		e.h[5] = ~csum_fold((__u64)e.w[0] + e.w[1] + e.w[2] + e.w[3] + e.w[4]);
		e.b[20] = 3;
		e.b[21] = 4;
		e.h[13] = bpf_htons(mtu);
		e.h[11] = ~csum_fold(sum + e.w[5] + e.w[6]);
		return !ctx_store(ctx, l3, e.b, IP4_LEN + ICMP_LEN);
	}
	e.b[0] = 0x60;
	e.h[2] = bpf_htons(ICMP_LEN + QUOTE);
	e.b[6] = P_ICMPV6;
	e.b[7] = 64;
	ctx_load(ctx, l3 + size + 24, &e.w[2], 16);
	ctx_load(ctx, l3 + size + 8, &e.w[6], 16);
	e.b[40] = 2;
	e.w[11] = bpf_htonl(mtu);
	for (int i = 2; i < 10; i++)
		sum += e.w[i];
	e.h[21] = ~csum_fold(sum + e.w[10] + e.w[11] + bpf_htons(ICMP_LEN + QUOTE) + bpf_htons(P_ICMPV6));
	return !ctx_store(ctx, l3, e.b, IP6_LEN + ICMP_LEN);
}
