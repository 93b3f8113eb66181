/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * echo.h: pings that the balancer answers itself (RFC 792, RFC 4443, 4.2): whole ones
 * without options or extension headers, from a single host, at most 1,000 a second of
 * one service. The reply is as long as the request and goes back where it came from.
 */
#pragma once

#include "error.h"

/* Decides about an echo request; steer.Engine.answer. */
static __always_inline int steer_answered(const struct pkt *p, const struct service *service)
{
	__u32 header = p->version == 4 ? IP4_LEN : IP6_LEN;

	if (p->first || p->cut || p->l4 != p->l3 + header || !has_sender(p))
		return REASON_ECHO_REFUSED;
	return rate_spend(RATE_ECHOES + service->id, THOUSAND, p->now) ? REASON_ECHO_ANSWERED : REASON_ECHO_RATE;
}

/* Writes type and hop limit of a reply to the headers of a request. Checksums change by
 * difference, so that a wrong one stays wrong. */
static __always_inline void echo_header(struct error_header *e, bool is4)
{
	__u16 *type = is4 ? &e->h[10] : &e->h[20], *check = type + 1, old = *type;

	*(__u8 *)type = is4 ? 0 : 129;
	*check = csum_apply(*check, csum_change_port(old, *type));
	if (!is4) {
		e->b[7] = 64;
		return;
	}
	old = e->h[4];
	e->b[8] = 64;
	e->h[5] = csum_apply(e->h[5], csum_change_port(old, e->h[4]));
}

/* Makes the frame of an echo request its reply. Returns 1 if it is one now. */
__noinline int echo_reply(ctx_t *ctx, struct pkt *p)
{
	struct error_header e;
	__u8 macs[12];

	if (!p || ctx_load(ctx, 0, macs, 12) || macs[0] & 1) /* to many: no one asked this machine */
		return 0;
	if (p->version == 4) {
		if (ctx_load(ctx, p->l3, e.b, IP4_LEN + ICMP_LEN))
			return 0;
		e.w[3] = p->key.dst[3];
		e.w[4] = p->key.src[3];
		echo_header(&e, true);
		if (ctx_store(ctx, p->l3, e.b, IP4_LEN + ICMP_LEN))
			return 0;
	} else {
		if (ctx_load(ctx, p->l3, e.b, IP6_LEN + ICMP_LEN))
			return 0;
		__builtin_memcpy(&e.w[2], p->key.dst, 16);
		__builtin_memcpy(&e.w[6], p->key.src, 16);
		echo_header(&e, false);
		if (ctx_store(ctx, p->l3, e.b, IP6_LEN + ICMP_LEN))
			return 0;
	}
	ctx_store(ctx, 0, macs + 6, 6);
	return !ctx_store(ctx, 6, macs, 6);
}
