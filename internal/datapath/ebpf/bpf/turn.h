/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * turn.h: ChannelData (RFC 8656, section 12) relayed in the kernel. User space
 * enters each bound channel as two entries: from the client to the peer, where the
 * header of four bytes goes, and back, where it comes. All else passes
 * untouched to the sockets, and so does whatever cannot be relayed exactly; every
 * check is made before the first write. A front end defines ctx_t and the ctx_
 * functions before it includes this file.
 */
#pragma once

#include "credit.h"
#include "csum.h"
#include "route.h"

/* What becomes of packets; read by user space from BTF: TURN_X is x. */
enum turn_end {
	TURN_OTHER,       /* passed: of no channel here */
	TURN_UNSUITED,    /* passed: UDP with a tag, options, extension headers, in fragments, or of odd lengths */
	TURN_SEGMENTS,    /* passed: several datagrams in one buffer (GRO, UDP_SEGMENT) */
	TURN_TTL,         /* passed: the hop limit ends here */
	TURN_TOO_BIG,     /* passed: larger than the MTU of the path */
	TURN_NO_CHECKSUM, /* passed: none in IPv4, and IPv6 requires one */
	TURN_NO_NEXT_HOP, /* passed: no route, no neighbour, or not by redirect */
	TURN_NO_ROOM,     /* passed: no room to move the frame */
	TURN_UP,          /* relayed to the peer */
	TURN_DOWN,        /* relayed to the client */
	TURN_PERMISSION,  /* dropped: the peer has none */
	TURN_BANDWIDTH,   /* dropped: the allocation has used its own up */
	TURN_FAILED,      /* dropped: the kernel refused after the first write */
	TURN_END,
};

/* What a packet is found by, in the order of struct flow_key. */
struct turn_key {
	__u32 src[4], dst[4];
	__u16 sport, dport;
	__u16 number; /* of the channel; 0: from the peer */
	__u16 pad;
};
_Static_assert(sizeof(struct turn_key) == sizeof(struct flow_key), "one is made of the other");

enum turn_state { ENTRY_OFF, ENTRY_OPEN, ENTRY_SHUT };

/* One direction of a channel: twice its id, and one more towards the client. */
struct relay_entry {
	struct turn_key key;
	__u32 src[4], dst[4]; /* as it leaves */
	__u16 sport, dport;
	__u16 number;         /* of the channel */
	__u8 version;         /* as it leaves */
	__u8 state;           /* turn_state */
	__u32 bucket;         /* of turn_buckets */
	__u32 hop;            /* 12 index in client_hops, 20 when and by which routes (route.h) */
	__u64 cost;           /* of one byte: ns << 16; 0: no bound */
	__u64 depth;          /* of the bucket: ns */
	__u8 local;           /* to this machine itself */
	__u8 pad[23];
};
_Static_assert(sizeof(struct relay_entry) == 128, "two cache lines");

struct turn_relayed {
	__u64 packets, bytes; /* of user data */
	__u64 last;           /* ticks */
};

const volatile __u32 relay_entries_max; /* of relay_entries */

MAP(HASH, turn_keys, struct turn_key, __u32, 1, 0);
MAP(ARRAY, relay_entries, __u32, struct relay_entry, 1, BPF_F_MMAPABLE);
MAP(ARRAY, turn_buckets, __u32, __u64, 1, BPF_F_MMAPABLE);
MAP(ARRAY, turn_traffic, __u32, struct turn_relayed, 1, BPF_F_MMAPABLE); /* for each CPU, of each entry */
MAP(HASH, turn_outs, __u32, __u32, 1024, 0); /* interfaces that take what XDP redirects */
MAP(PERCPU_ARRAY, turn_counts, enum turn_end, struct count, TURN_END, 0);
MAP(PERCPU_ARRAY, turn_packets, __u32, struct pkt, 1, 0);

/* What the front end needs to rewrite a packet; offsets from the frame's start. */
struct relay {
	__u64 change;      /* of the transport's sum, addresses and pseudo-header's length left out */
	__u64 pseudo;      /* of the sum of these two */
	__u32 data, bytes; /* user data, where it is now */
	__u32 channel;     /* its header, as in the packet */
	__u32 index;       /* of its next hop */
	__u16 length;      /* of the UDP datagram that leaves, host order */
	__u8 up;
	__u8 tos;
};

enum { CHANNEL_LEN = 4, CHANNEL_PAD = 3, TTL_FIELD = 8, IP6_VERSION = 0x60 };

static __always_inline __u32 ip_len(__u8 version) { return version == 4 ? IP4_LEN : IP6_LEN; }

static __always_inline struct relay_entry *relay_entry_at(__u32 at) { return bpf_map_lookup_elem(&relay_entries, &at); }

/* The index of the entry of a key, and the entry if it is that of this very key: indexes are reused. */
static __always_inline struct relay_entry *relay_entry_of(const struct turn_key *key, __u32 *at)
{
	const __u32 *found = bpf_map_lookup_elem(&turn_keys, key);
	const __u64 *a = (const __u64 *)key, *b;
	struct relay_entry *entry;

	if (!found)
		return NULL;
	*at = *found;
	entry = relay_entry_at(*at);
	if (!entry)
		return NULL;
	b = (const __u64 *)&entry->key;
	return (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]) ? NULL : entry;
}

/* Looks up the next hop; returns its index, or why there is none. */
__noinline int turn_route(ctx_t *ctx, struct pkt *p, __u32 at)
{
	const struct control *control = control_of();
	struct relay_entry *entry = relay_entry_at(at);
	__u32 index, tag;
	__u8 version;
	int problem;

	if (!p || !control || !entry)
		return ROUTE_NONE;
	tag = hop_tag(p, control); /* first: routes may change while they are looked up */
	version = p->version;
	p->version = entry->version;
	p->nat.set_src = p->nat.set_dst = 1;
	copy16(p->nat.src, entry->src);
	copy16(p->nat.dst, entry->dst);
	problem = route_of(ctx, p);
	p->version = version;
	if (problem)
		return problem;
	if (ctx_picks_outs && !bpf_map_lookup_elem(&turn_outs, &p->out.ifindex))
		return ROUTE_NONE;
	index = hop_enter(p);
	if (index < CLIENT_HOPS)
		entry->hop = tag | index;
	return index;
}

/* The index of the next hop of the entry. */
static __always_inline int turn_hop(ctx_t *ctx, struct pkt *p, const struct relay_entry *entry, __u32 at)
{
	const struct control *control = control_of();
	__u32 index = entry->hop & (CLIENT_HOPS - 1);

	if (!control)
		return ROUTE_NONE;
	return entry->hop - index == hop_tag(p, control) ? (int)index : turn_route(ctx, p, at);
}

/* Whether what parse read is plain UDP that may be of a channel. */
static __always_inline bool turn_plain(ctx_t *ctx, const struct pkt *p)
{
	return !(p->first | p->later | p->cut) && p->l3 == ETH_LEN && p->l4 - p->l3 == ip_len(p->version) && ctx_ours(ctx);
}

/* The sum of an IPv4 header without options; 0xffff if it is right. */
static __always_inline __u16 ip4_sum(const void *ip)
{
	const __u32 *w = ip;

	return csum_fold((__u64)w[0] + w[1] + w[2] + w[3] + w[4]);
}

/* The sum of the padding behind the user data, as it stands in the datagram. */
static __always_inline int pad_sum(ctx_t *ctx, const struct pkt *p, __u32 at, __u64 *sum)
{
	for (int i = 0; i < CHANNEL_PAD; i++, at++) {
		__u8 b = 0;

		if (at >= p->end)
			break;
		if (ctx_load(ctx, at, &b, 1))
			return -1;
		*sum += (at - p->l4) & 1 ? (__u32)b << 8 : b;
	}
	return 0;
}

/* Finds the packet's entry, and what is to be done. Returns TURN_UP, TURN_DOWN or why not. */
static __always_inline int turn_find(ctx_t *ctx, struct pkt *p, struct relay *r, __u32 *at)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx), *ip = data + ETH_LEN, *udp;
	struct relay_entry *entry = NULL;
	struct turn_key key;
	__u16 size, check;
	__u32 first = 0;

	if (p->kind != KIND_UDP)
		return TURN_OTHER;
	if (!turn_plain(ctx, p))
		return TURN_UNSUITED;
	udp = ip + ip_len(p->version);
	if (udp + UDP_LEN > end)
		return TURN_UNSUITED;
	size = bpf_ntohs(*(__u16 *)(udp + 4));
	check = *(__u16 *)(udp + 6);
	if (p->l4 + size != p->end)
		return TURN_UNSUITED;
	__builtin_memcpy(&key, &p->key, offsetof(struct turn_key, number));
	key.pad = 0;
	if (size >= UDP_LEN + CHANNEL_LEN) {
		if (udp + UDP_LEN + CHANNEL_LEN <= end)
			first = *(__u32 *)(udp + UDP_LEN);
		else if (ctx_load(ctx, p->payload, &first, CHANNEL_LEN))
			return TURN_UNSUITED;
		if ((first & 0xf0) == 0x40) {
			key.number = bpf_ntohs(first);
			entry = relay_entry_of(&key, at);
		}
	}
	r->up = entry != NULL;
	if (!entry) {
		key.number = 0;
		entry = relay_entry_of(&key, at);
		if (!entry)
			return TURN_OTHER;
	}
	if (entry->state != ENTRY_OPEN)
		return entry->state == ENTRY_SHUT ? TURN_PERMISSION : TURN_OTHER;
	if (ctx_segments(ctx))
		return TURN_SEGMENTS;
	if (p->ttl <= 1)
		return TURN_TTL;
	if (!check && entry->version == 6)
		return TURN_NO_CHECKSUM;
	data = ctx_data(ctx);
	end = ctx_end(ctx);
	ip = data + ETH_LEN;
	r->change = csum_change_port(p->key.sport, entry->sport) + csum_change_port(p->key.dport, entry->dport);
	if (r->up) {
		__u32 behind;
		__u64 gone;

		r->bytes = bpf_ntohs(first >> 16);
		r->data = p->payload + CHANNEL_LEN;
		behind = r->data + r->bytes;
		if (behind > p->end || p->end - behind > CHANNEL_PAD)
			return TURN_UNSUITED;
		r->length = UDP_LEN + r->bytes;
		gone = first;
		if (pad_sum(ctx, p, behind, &gone))
			return TURN_UNSUITED;
		r->change += (__u16)~csum_fold(gone);
	} else {
		r->bytes = size - UDP_LEN;
		r->data = p->payload;
		r->length = size + CHANNEL_LEN;
		if (r->bytes > 0xffff - UDP_LEN - CHANNEL_LEN - IP4_LEN)
			return TURN_TOO_BIG;
		r->channel = bpf_htons(entry->number) | (__u32)bpf_htons(r->bytes) << 16;
		r->change += r->channel;
	}
	r->change += csum_change_port(bpf_htons(size), bpf_htons(r->length));
	r->pseudo = csum_change_port(bpf_htons(size), bpf_htons(r->length)) + csum_address(entry->src, entry->version) +
		    csum_address(entry->dst, entry->version) +
		    (__u16)~csum_fold(csum_address(p->key.src, p->version) + csum_address(p->key.dst, p->version));
	if (p->version == 4) {
		if (ip + IP4_LEN > end || ip4_sum(ip) != 0xffff)
			return TURN_UNSUITED;
		r->tos = *(__u8 *)(ip + 1);
	} else {
		if (ip + 2 > end || !check)
			return TURN_UNSUITED;
		r->tos = bpf_ntohs(*(__u16 *)ip) >> 4;
	}
	return r->up ? TURN_UP : TURN_DOWN;
}

/* Writes link, network and transport headers but the checksum of the latter; true if there is room. */
static __always_inline bool turn_head(ctx_t *ctx, const struct pkt *p, const struct relay_entry *entry, const struct relay *r,
				      const struct out *out)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx), *ip = data + ETH_LEN;
	const __u32 *macs = (const __u32 *)out->dmac;
	__u8 ttl = p->ttl - !entry->local;
	__u32 *w = ip, *link = data;
	__u16 *udp;

	if (data + ETH_LEN + IP4_LEN + UDP_LEN > end)
		return false;
	link[0] = macs[0];
	link[1] = macs[1];
	link[2] = macs[2];
	if (entry->version == 4) {
		__u32 head = 0x45 | (__u32)r->tos << 8 | (__u32)bpf_htons(IP4_LEN + r->length) << 16;
		__u32 fragment = (__u32)bpf_htons(0x4000) << 16, third = ttl | (__u32)P_UDP << 8;
		__u16 check = ~csum_fold((__u64)head + fragment + third + entry->src[3] + entry->dst[3]);

		*(__u16 *)(data + 12) = bpf_htons(0x0800);
		w[0] = head;
		w[1] = fragment;
		w[2] = third | (__u32)check << 16;
		w[3] = entry->src[3];
		w[4] = entry->dst[3];
		udp = ip + IP4_LEN;
	} else {
		if (data + ETH_LEN + IP6_LEN + UDP_LEN > end)
			return false;
		*(__u16 *)(data + 12) = bpf_htons(0x86dd);
		w[0] = IP6_VERSION | r->tos >> 4 | (__u32)(r->tos & 0xf) << 12;
		w[1] = bpf_htons(r->length) | (__u32)P_UDP << 16 | (__u32)ttl << 24;
		copy16(w + 2, entry->src);
		copy16(w + 6, entry->dst);
		udp = ip + IP6_LEN;
	}
	udp[0] = entry->sport;
	udp[1] = entry->dport;
	udp[2] = bpf_htons(r->length);
	return true;
}

static __always_inline void turn_traffic_add(__u32 at, __u32 bytes, __u64 now)
{
	__u32 i = bpf_get_smp_processor_id() * relay_entries_max + at;
	struct turn_relayed *t = bpf_map_lookup_elem(&turn_traffic, &i);

	if (!t)
		return;
	t->packets++;
	t->bytes += bytes;
	t->last = now;
}

/* Whether the allocation may send so many bytes now. */
static __always_inline bool turn_allow(const struct pkt *p, const struct relay_entry *entry, __u32 bytes)
{
	__u32 i = entry->bucket;
	__u64 *full;

	if (!entry->cost)
		return true;
	full = bpf_map_lookup_elem(&turn_buckets, &i);
	return full && credit_take(full, bytes * entry->cost >> 16, entry->depth, p->now * params.tick_ns);
}

static __always_inline int turn_relay(ctx_t *ctx, struct pkt *p, int *verdict)
{
	const struct out *out = &p->out;
	struct relay r = {};
	struct relay_entry *entry;
	struct client_hop *h;
	__u32 at = 0, index;
	int end = turn_find(ctx, p, &r, &at), problem;

	if (end != TURN_UP && end != TURN_DOWN)
		return end;
	entry = relay_entry_at(at);
	if (!entry)
		return TURN_OTHER;
	if (entry->local) {
		if (!ctx_delivers(ctx) || entry->version != p->version)
			return TURN_NO_NEXT_HOP;
		if (ctx_load(ctx, 0, p->out.dmac, 12))
			return TURN_UNSUITED;
	} else {
		int found = turn_hop(ctx, p, entry, at);

		if (found < 0)
			return TURN_NO_NEXT_HOP;
		index = found;
		h = bpf_map_lookup_elem(&client_hops, &index);
		if (!h)
			return TURN_NO_NEXT_HOP;
		if (ip_len(entry->version) + r.length > h->out.mtu)
			return TURN_TOO_BIG;
		out = &h->out;
	}
	if (!turn_allow(p, entry, r.bytes))
		return TURN_BANDWIDTH;
	problem = ctx_shift(ctx, p, entry, &r, out);
	if (problem)
		return problem;
	turn_traffic_add(at, r.bytes, p->now);
	*verdict = entry->local ? ctx_pass : bpf_redirect(out->ifindex, 0);
	return end;
}

static __always_inline int turn(ctx_t *ctx)
{
	const struct control *control = control_of();
	int end = TURN_OTHER, parsed = PARSE_MALFORMED, verdict = ctx_pass;
	__u32 zero = 0, bytes = ctx_len(ctx);
	struct count *n;
	struct pkt *p = bpf_map_lookup_elem(&turn_packets, &zero);

	if (!control || !p)
		return ctx_pass;
	for (int pulled = 0; pulled < 2; pulled++) {
		__builtin_memset(p, 0, offsetof(struct pkt, nat.src));
		p->now = clock_now(control);
		parsed = parse(ctx, p);
		if (!ctx_can_pull || parsed != PARSE_PULL || !ctx_pull(ctx, p))
			break;
	}
	if (parsed == PARSED)
		end = turn_relay(ctx, p, &verdict);
	if (end >= TURN_PERMISSION)
		verdict = ctx_drop;
	__u32 i = end;
	n = bpf_map_lookup_elem(&turn_counts, &i);
	if (n) {
		n->packets++;
		n->bytes += bytes;
	}
	return verdict;
}
