/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * vip.h: from destination to service: longest prefix first, then the exact
 * port, then the narrowest range. Each prefix has one line with its first five
 * ports in it, so the usual look-up touches one line.
 */
#pragma once

#include "clock.h"
#include "maps.h"
#include "parse.h"

static __always_inline bool same_address(const __u32 a[4], const __u32 b[4])
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

/* Ports that did not fit into the address's own line. */
__noinline __u32 vip_more(__u32 vip, __u32 proto, __u32 port)
{
	struct vport_key exact = {.vip = vip, .port = port, .proto = proto};
	struct vip_ranges_key key = {.vip = vip, .proto = proto};
	const struct vip_ranges *r;
	const __u16 *service;

	service = bpf_map_lookup_elem(&vports, &exact);
	if (service)
		return *service;
	r = bpf_map_lookup_elem(&vranges, &key);
	if (!r)
		return 0;
	for (__u32 i = 0; i < MAX_RANGES; i++) {
		if (i >= r->count)
			break;
		if (r->range[i].first <= port && port <= r->range[i].last)
			return r->range[i].service;
	}
	return 0;
}

/* Returns the index of the line of one prefix, or NO_NUMBER. */
static __always_inline const struct vip *vip_find(__u32 index, __u32 active, __u64 a, __u64 b, __u32 bits)
{
	for (__u32 probe = 0; probe < MAX_PROBE; probe++) {
		__u32 at = ((index + probe) & params.vip_mask) + active * (params.vip_mask + 1);
		const struct vip *v = bpf_map_lookup_elem(&vips, &at);

		if (!v || !v->bits)
			return NULL;
		if (v->bits == bits && ((__u64)v->addr[1] << 32 | v->addr[0]) == a &&
		    ((__u64)v->addr[3] << 32 | v->addr[2]) == b)
			return v;
	}
	return NULL;
}

#define VIP_SERVICE(found) ((found) & 0xffff)  /* stable number, 0: none */
#define VIP_COVERED(found) ((found) >> 16)     /* the one that answers for the address as such */

/* What is looked up, and what was found. */
struct vip_search {
	const struct generation *g;
	__u64 hi, lo; /* the address */
	__u32 active, proto, port;
	__u32 from; /* number of the first prefix length of vip_round */
	volatile __u32 *found; /* in a table, whose contents the verifier does not follow */
};

/* Looks for the address under the prefix length of number i, longest first. 1: the search ends. */
static __always_inline long vip_step(__u32 i, struct vip_search *s)
{
	const struct generation *g = s->g;
	const struct vip *v;
	__u64 a, b;

	if (i >= MAX_LENGTHS || i >= g->lengths)
		return 1;
	a = s->hi & g->length[i].mask[0];
	b = s->lo & g->length[i].mask[1];
	v = vip_find((a * g->mult[0] ^ b * g->mult[1] ^ g->length[i].bits * g->mult[2]) >> VIP_SHIFT, s->active, a, b,
		     g->length[i].bits);
	if (!v)
		return 0;
	if (!*s->found)
		*s->found = v->echo << 16;
	if (!s->proto)
		return 1;
	for (__u32 j = 0; j < VIP_PORTS; j++) {
		const struct vip_port *vp = &v->port[j];

		if (j >= v->ports)
			break;
		if (vp->proto == s->proto && vp->first <= s->port && s->port <= vp->last) {
			*s->found |= vp->service;
			return 1;
		}
	}
	if (v->more) {
		__u32 service = vip_more(v->more, s->proto, s->port);

		if (service) {
			*s->found |= service & 0xffff;
			return 1;
		}
	}
	return 0;
}

static __always_inline bool vip_begin(struct vip_search *s, const __u32 *to, __u32 active, __u32 proto, __u32 port)
{
	active &= 1;
	s->g = bpf_map_lookup_elem(&generations, &active);
	s->hi = (__u64)to[1] << 32 | to[0];
	s->lo = (__u64)to[3] << 32 | to[2];
	s->active = active;
	s->proto = proto;
	s->port = bpf_ntohs(port);
	*s->found = 0;
	return s->g;
}

static long vip_round(__u32 i, struct vip_search *s) { return vip_step(i + s->from, s); }

/* Prefix lengths that are looked at in line: the verifier walks what follows once for each. Whole addresses have the first one. */
enum { VIP_INLINE = 2 };

/* Goes on behind those. */
__noinline int vip_rest(struct pkt *p)
{
	struct vip_search s = {.from = VIP_INLINE};
	__u32 found;

	if (!p)
		return 0;
	found = p->vip;
	s.found = &p->vip;
	if (vip_begin(&s, p->key.dst, p->active, p->key.proto, p->key.dport)) {
		p->vip = found;
		bpf_loop(MAX_LENGTHS - VIP_INLINE, vip_round, &s, 0);
	}
	return 0;
}

/* Looks the packet's destination up. */
static __always_inline __u32 vip_of(struct pkt *p)
{
	struct vip_search s = {.found = &p->vip};

	if (!vip_begin(&s, p->key.dst, p->active, p->key.proto, p->key.dport))
		return 0;
	for (__u32 i = 0; i < VIP_INLINE; i++) {
		if (vip_step(i, &s))
			return p->vip;
	}
	if (s.g->lengths > VIP_INLINE)
		vip_rest(p);
	return p->vip;
}

/* The same as a function of its own, where nanoseconds matter less than size, of any
 * destination. The port is in network order; protocol 0 requests the address only. */
__noinline __u32 vip_lookup(const struct addr *to, __u32 active, __u32 proto, __u32 port)
{
	__u32 found;
	struct vip_search s = {.found = &found};

	if (!to || !vip_begin(&s, to->word, active, proto, port))
		return 0;
	bpf_loop(MAX_LENGTHS, vip_round, &s, 0);
	return found;
}

/* Puts the service of the packet's client in the place of the set of clients that its VIP
 * has in p->service. False: no service serves it, and this one counts the packet. */
__noinline int client_served(struct pkt *p)
{
	struct client_prefix key = {.bits = 32 + 128};
	const __u32 *found;

	if (!p)
		return 0;
	key.set = (__u32)p->service << 1 | (p->version == 6);
	__builtin_memcpy(key.addr, p->key.src, 16);
	found = bpf_map_lookup_elem(&clients, &key);
	p->service = found ? *found : 0;
	return found && !(*found & CLIENT_REFUSED);
}

static __always_inline __u32 vip_covers(const struct pkt *p, const __u32 addr[4])
{
	return VIP_COVERED(vip_lookup((const struct addr *)addr, p->active, 0, 0));
}
