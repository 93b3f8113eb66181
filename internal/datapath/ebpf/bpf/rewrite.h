/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * rewrite.h: new endpoints and hop limit for a packet, in place. Checksums change by
 * difference, so that what was wrong stays wrong and what was right stays right. A
 * UDP checksum of zero (none) stays zero (RFC 768). A front end defines
 * ctx_update_check before it includes this file.
 */
#pragma once

#include "csum.h"

/* Rewrites a packet that is not an ICMP error. False: the packet shrank under us. */
static __always_inline int nat_plain_here(ctx_t *ctx, struct pkt *p)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx), *ip;
	__u64 addresses = 0, moved = 0;
	struct rewrite *r;
	bool ports;

	r = &p->nat;
	ip = data + (p->l3 & 31);
	ports = !p->later && (p->proto == P_TCP || p->proto == P_UDP);

	if (p->version == 4) {
		__u16 *check = ip + 10;

		if (ip + IP4_LEN > end)
			return false;
		if (r->set_src) {
			addresses += csum_change(p->key.src[3], r->src[3]);
			*(__u32 *)(ip + 12) = r->src[3];
		}
		if (r->set_dst) {
			addresses += csum_change(p->key.dst[3], r->dst[3]);
			*(__u32 *)(ip + 16) = r->dst[3];
		}
		*check = csum_apply(*check, addresses);
	} else {
		if (ip + IP6_LEN > end)
			return false;
		if (r->set_src) {
			addresses += csum_change_address(p->key.src, r->src, 6);
			copy16(ip + 8, r->src);
		}
		if (r->set_dst) {
			addresses += csum_change_address(p->key.dst, r->dst, 6);
			copy16(ip + 24, r->dst);
		}
	}
	if (p->later)
		return true;
	if (ports) {
		__u16 *t = data + (p->l4 & MAX_HEADERS);

		if ((void *)(t + 2) > end)
			return false;
		if (r->set_src && r->sport) {
			moved += csum_change_port(p->key.sport, r->sport);
			t[0] = r->sport;
		}
		if (r->set_dst && r->dport) {
			moved += csum_change_port(p->key.dport, r->dport);
			t[1] = r->dport;
		}
	}
	int at = csum_offset(p->proto, p->version);

	if (at < 0)
		return true;
	return ctx_update_check(ctx, p, (p->l4 & MAX_HEADERS) + at, addresses, moved);
}

/* Takes one from the hop limit. */
static __always_inline bool count_down(ctx_t *ctx, const struct pkt *p)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx), *ip = data + (p->l3 & 31);

	if (p->version == 6) {
		if (ip + IP6_LEN > end)
			return false;
		*(__u8 *)(ip + 7) = p->ttl - 1;
		return true;
	}
	if (ip + IP4_LEN > end)
		return false;
	/* Whole words: a load of what was stored in parts waits for the cache. */
	__u16 *field = ip + 8, *check = ip + 10, old = *field, new = (old & 0xff00) | (__u8)(p->ttl - 1);

	*field = new;
	*check = csum_apply(*check, csum_change_port(old, new));
	return true;
}
