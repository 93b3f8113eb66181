/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * vip.h: from destination to service: longest prefix first, then the exact
 * port, then the narrowest range. Each prefix has one line with its first five
 * ports in it, so the usual look-up touches one line.
 */
#pragma once

#include "clock.h"
#include "parse.h"

static __always_inline bool same_address(const __u32 a[4], const __u32 b[4])
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}
static __always_inline __u32 vip_place(const struct generation *g, __u64 a, __u64 b, __u32 bits)
{
	return (a * g->mult[0] ^ b * g->mult[1] ^ bits * g->mult[2]) >> 40;
}

/* Returns the line of the i-th longest prefix that covers the address. */
static __always_inline const struct vip *vip_find(const struct generation *g, __u32 active, const __u32 addr[4], __u32 i)
{
	__u64 a, b;
	__u32 place, bits;

	if (i >= MAX_LENGTHS)
		return NULL;
	a = ((__u64)addr[1] << 32 | addr[0]) & g->length[i].mask[0];
	b = ((__u64)addr[3] << 32 | addr[2]) & g->length[i].mask[1];
	bits = g->length[i].bits;
	place = vip_place(g, a, b, bits);
	for (int probe = 0; probe < MAX_PROBE; probe++) {
		__u32 at = ((place + probe) & params.vip_mask) + active * (params.vip_mask + 1);
		const struct vip *v = bpf_map_lookup_elem(&vips, &at);

		if (!v || !v->bits)
			return NULL;
		if (v->bits == bits && ((__u64)v->addr[1] << 32 | v->addr[0]) == a &&
		    ((__u64)v->addr[3] << 32 | v->addr[2]) == b)
			return v;
	}
	return NULL;
}

/* What a destination is. */
struct destination {
	__u32 service; /* stable number, 0: none */
	__u32 covered; /* the address is a VIP's: the service that answers for it */
};

/* Ports that did not fit into the address's own line. */
__noinline int vip_more(__u32 vip, __u32 proto, __u32 port)
{
	struct vport_key exact = {.vip = vip, .port = port, .proto = proto};
	struct vranges_key key = {.vip = vip, .proto = proto};
	const struct vranges *r;
	const __u16 *service;

	service = bpf_map_lookup_elem(&vports, &exact);
	if (service)
		return *service;
	r = bpf_map_lookup_elem(&vranges, &key);
	if (!r)
		return 0;
	for (int i = 0; i < MAX_RANGES; i++) {
		if (i >= r->count)
			break;
		if (r->range[i].first <= port && port <= r->range[i].last)
			return r->range[i].service;
	}
	return 0;
}

static __always_inline void vip_lookup(const struct generation *g, __u32 active, const __u32 addr[4], __u8 proto,
				       __u16 port, struct destination *out)
{
	port = bpf_ntohs(port);
	out->service = out->covered = 0;
	for (__u32 i = 0; i < MAX_LENGTHS; i++) {
		const struct vip *v;

		if (i >= g->lengths)
			return;
		v = vip_find(g, active, addr, i);
		if (!v)
			continue;
		if (!out->covered)
			out->covered = v->echo;
		for (int j = 0; j < VIP_PORTS; j++) {
			const struct vip_port *vp = &v->port[j];

			if (j >= v->ports)
				break;
			if (vp->proto == proto && vp->first <= port && port <= vp->last) {
				out->service = vp->service;
				return;
			}
		}
		if (v->more) {
			out->service = vip_more(v->more, proto, port);
			if (out->service)
				return;
		}
	}
}
