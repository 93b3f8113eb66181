/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * parse.h: from a frame to one struct pkt, accepting and refusing exactly what
 * packet.ParseFrame does. Plain TCP and UDP are read in place; extension
 * headers (RFC 8200), ICMP and quoted packets (RFC 792, RFC 4443) by separate
 * functions that the kernel verifies on their own.
 */
#pragma once

#include "params.h"

enum kind { KIND_OTHER, KIND_TCP, KIND_UDP, KIND_SCTP, KIND_ECHO, KIND_ICMP_ERROR, KIND_ICMP_OTHER };

enum { P_ICMP = 1, P_TCP = 6, P_UDP = 17, P_ICMPV6 = 58, P_SCTP = 132 };
enum { X_HOP = 0, X_ROUTING = 43, X_FRAGMENT = 44, X_AUTH = 51, X_DEST = 60 };
enum { ETH_LEN = 14, IP4_LEN = 20, IP6_LEN = 40, UDP_LEN = 8, ICMP_LEN = 8 };
enum { FLAG_FIN = 1, FLAG_SYN = 2, FLAG_RST = 4, FLAG_ACK = 16 };
enum { MAX_HEADERS = 0x3ff }; /* transport headers deeper in the frame are not read */

/* The endpoints that NAT gives a packet. */
struct rewrite {
	__u16 sport, dport; /* 0: keep */
	__u8 set_src, set_dst;
	__u8 pad[2];
	__u32 src[4], dst[4];
};

/* What the search for a reply key needs. */
/* A slot that may make room (flow.h). */
struct victim {
	__u64 fingerprint, meta;
	__u64 age;    /* the lowest goes first */
	__u32 number; /* NO_NUMBER: there is none */
	__u32 pad;
};

/* What touch_write writes, in a table, whose contents the verifier does not follow. */
struct touched {
	__u64 seen, next; /* meta of the slot at hand */
	__u64 first;      /* seen at first */
	__u64 fingerprint;      /* of the reply */
	__u32 other;      /* number of the flow's other slot */
	__u32 denied;     /* the flow may not be proven in its bucket */
};

struct reservation {
	struct flow_key reply;
	__u64 expiry;
	__u64 fingerprint;      /* out */
	__u64 now;
	__u32 number;     /* of the flow */
	__u32 nat;        /* out: index of the address + 1 */
	__u32 first;      /* of its addresses */
	__u32 pool;       /* addresses x ports; 0: no choice */
	__u32 ports;
	__u32 start;      /* of the search */
	__u16 first_port; /* host order */
	__u16 nat_port;   /* out */
	__u8 echo;
	__u8 state;
	__u8 tries;
	__u8 any;         /* may evict a proven flow */
	__u8 full;        /* out: no slot was free for a reply key */
	__u8 takes;       /* may end the unproven flow that has the reply key */
	__u8 opens;       /* may end the closed connection that has the reply key */
	__u8 pad;
	__u32 service;    /* number in services */
	__u64 rank;       /* of the chosen candidate, see reserve_taken */
	__u32 chosen;
	__u32 young;      /* candidates that young handshakes have */
	__u32 at;         /* out: the slot of the reply */
	__u32 pad2;
	struct victim victim;
};

#define NO_SLOT 0xffffu      /* of such a line; not a backend */
#define SLOT_DROP 0xfffeu    /* in a Maglev table: a share without a server, dropped */
#define SLOT_REJECT 0xfffdu  /* and answered */
#define NO_NUMBER 0xffffffffu

/* pkt.refused: what Maglev gave the flow instead of a slot. */
enum { REFUSED_NOT, REFUSED_DROP = NO_SLOT - SLOT_DROP, REFUSED_REJECT = NO_SLOT - SLOT_REJECT };

/* pkt.came: the tunnel that was taken off (inbound.h). */
enum { CAME_PLAIN, CAME_IPIP4, CAME_IPIP6, CAME_GUE };

/* A packet that is processed: what it is, and what was chosen for it. It holds no
 * pointer, so each function that takes one is verified by itself.
 *
 * Offsets count from the start of the frame. The key is the flow of packets in
 * this one's direction: an ICMP error's is the quoted flow reversed, later
 * fragments have no ports. */
struct pkt {
	struct flow_key key;
	__u16 service;   /* stable number, or 0 */
	__u16 l3, l4, payload;
	__u16 quote, quote_l4; /* of an ICMP error */
	__u8 version;
	__u8 kind;
	__u8 proto;      /* of this packet's transport header */
	__u8 ttl;
	__u8 tcp_flags;
	__u8 first, later;
	__u8 quote_later;
	__u8 icmp_type, icmp_code;
	__u8 df;
	__u8 cut;        /* shorter than its header says */
	__u8 back;       /* from the backend to the client */
	__u8 opened;     /* its flow's entry is new */
	__u8 mode;       /* of the service */
	__u8 reason;     /* that steering gave */
	__u8 inject;     /* from user space */
	__u8 partial;    /* the checksum covers the pseudo-header only */
	__u8 owned;      /* its connection id names slot, in mode NAT: no full table stops it */
	__u8 refused;    /* REFUSED_ */
	__u8 came;       /* CAME_ */
	struct rewrite nat;
	/* from nat.src on not cleared for each packet */
	__u64 now;       /* ticks */
	__u64 fingerprint;     /* of the key, once computed; of a reply, its fingerprint in replies */
	__u32 end;       /* of the IP packet */
	__u32 len;       /* of the frame */
	__u32 active;    /* number of the generation; mask its lowest bit */
	__u32 number;    /* of the flow's entry, or NO_NUMBER */
	__u32 old;       /* of an entry with its fingerprint that does not count, or NO_NUMBER */
	__u32 spare;     /* a table slot that a new flow may take, or NO_NUMBER */
	__u32 slot;      /* of the backend, or NO_SLOT */
	__u32 id;        /* of the datagram, of fragments */
	__u32 dst[4];    /* of an ICMP error itself */
	struct flow_key sent; /* while key is a client's of a flow that its backend starts */
	struct reservation reservation;
	struct touched touched;
	struct bpf_fib_lookup fib;
	struct out out; /* of a reply, if that was looked up for it */
	__u32 from[4];  /* source of an error about it */
	__u32 vip;      /* what was found for its destination (vip.h) */
};

#define MAPPED bpf_htonl(0xffff)

/* Copies an IPv6 address; packets are aligned to two bytes only, which costs
 * nothing on the machines that this runs on. */
static __always_inline void copy16(__u32 *to, const void *from)
{
	const __u64 *f = from;
	__u64 *t = (__u64 *)to;

	t[0] = f[0];
	t[1] = f[1];
}

/* Words of the key are written whole: what is read wider than it was written
 * waits until the store has reached the cache. */
static __always_inline void key_word(void *to, __u32 word) { *(volatile __u32 *)to = word; }

static __always_inline void key_ip4(__u32 *to, __u32 address)
{
	*(volatile __u64 *)(to + 2) = (__u64)address << 32 | MAPPED;
}

/* An IPv4-mapped address in an IPv6 header would pose as IPv4. */
static __always_inline bool poses(const __u32 a[4]) { return !a[0] && !a[1] && a[2] == MAPPED; }

static __always_inline __u8 kind_of(__u8 proto, __u8 version)
{
	switch (proto) {
	case P_TCP:
		return KIND_TCP;
	case P_UDP:
		return KIND_UDP;
	case P_SCTP:
		return KIND_SCTP;
	case P_ICMP:
		return version == 4 ? KIND_ICMP_OTHER : KIND_OTHER;
	case P_ICMPV6:
		return version == 6 ? KIND_ICMP_OTHER : KIND_OTHER;
	}
	return KIND_OTHER;
}

static __always_inline bool is_extension(__u8 proto)
{
	return proto == X_HOP || proto == X_ROUTING || proto == X_DEST || proto == X_FRAGMENT || proto == X_AUTH;
}

/* What a walk over extension headers finds. */
struct walk {
	__u32 l4, end, id;
	__u8 proto, first, later, ok;
};

/* Walks from w->l4, a header of type w->proto, to the transport header or the
 * end of a later fragment's fragment header. Returns 0 if the packet is malformed. */
__noinline int walk_extensions(ctx_t *ctx, struct walk *w)
{
	__u8 b[8];

	if (!w)
		return 0;
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		__u32 length;
		__u8 proto = w->proto;

		if (!is_extension(proto))
			return 1;
		if (w->end < w->l4 + 8 || ctx_load(ctx, w->l4, b, 8))
			return 0;
		if (proto == X_FRAGMENT) {
			__u16 field = b[2] << 8 | b[3];

			length = 8;
			w->later = (field & 0xfff8) != 0;
			w->first = !w->later && (field & 1);
			w->id = (__u32)b[4] << 24 | (__u32)b[5] << 16 | (__u32)b[6] << 8 | b[7];
		} else if (proto == X_AUTH) {
			length = ((__u32)b[1] + 2) * 4;
		} else {
			length = ((__u32)b[1] + 1) * 8;
		}
		w->proto = b[0];
		w->l4 += length;
		if (w->l4 > w->end)
			return 0;
		if (w->later)
			return 1;
	}
	return !is_extension(w->proto);
}

/* Reads the packet that an ICMP error quotes. */
static __always_inline bool parse_quote(ctx_t *ctx, struct pkt *p)
{
	union {
		__u8 b[IP6_LEN];
		__u16 h[20];
		__u32 w[10];
	} ip;
	struct walk w = {};
	__u32 at = p->payload;

	__builtin_memcpy(p->dst, p->key.dst, 16);
	if (p->version == 4) {
		__u32 header;
		__u16 field;

		if (p->end < at + IP4_LEN || ctx_load(ctx, at, ip.b, IP4_LEN))
			return false;
		header = (ip.b[0] & 15) * 4;
		if (ip.b[0] >> 4 != 4 || header < IP4_LEN || bpf_ntohs(ip.h[1]) < header || at + header > p->end)
			return false;
		w.l4 = at + header;
		w.end = p->end;
		w.proto = ip.b[9];
		if (at + bpf_ntohs(ip.h[1]) < w.end)
			w.end = at + bpf_ntohs(ip.h[1]);
		field = bpf_ntohs(ip.h[3]);
		w.later = (field & 0x1fff) != 0;
		w.id = bpf_ntohs(ip.h[2]);
		p->key.src[3] = ip.w[4];
		p->key.dst[3] = ip.w[3];
	} else {
		if (p->end < at + IP6_LEN || ctx_load(ctx, at, ip.b, IP6_LEN))
			return false;
		if (ip.b[0] >> 4 != 6)
			return false;
		w.l4 = at + IP6_LEN;
		w.end = at + IP6_LEN + bpf_ntohs(ip.h[2]);
		if (w.end > p->end)
			w.end = p->end;
		w.proto = ip.b[6];
		if (poses(&ip.w[2]) || poses(&ip.w[6]))
			return false;
		if (is_extension(w.proto) && !walk_extensions(ctx, &w))
			return false;
		__builtin_memcpy(p->key.src, ip.b + 24, 16);
		__builtin_memcpy(p->key.dst, ip.b + 8, 16);
	}
	p->kind = KIND_ICMP_ERROR;
	p->quote = at;
	p->quote_l4 = w.l4;
	p->key.proto = w.proto;
	if (w.later) {
		p->quote_later = 1;
		p->id = w.id;
		return true;
	}
	switch (kind_of(w.proto, p->version)) {
	case KIND_TCP:
	case KIND_UDP:
	case KIND_SCTP:
		if (p->end < w.l4 + 4 || ctx_load(ctx, w.l4, ip.b, 4))
			return false;
		p->key.sport = ip.h[1];
		p->key.dport = ip.h[0];
		break;
	case KIND_ICMP_OTHER:
		if (p->end < w.l4 + ICMP_LEN || ctx_load(ctx, w.l4, ip.b, ICMP_LEN))
			return false;
		p->key.sport = ip.h[2];
		break;
	}
	return true;
}

/* Reads an ICMP message. Returns 0 if the packet is malformed. */
__noinline int parse_icmp(ctx_t *ctx, struct pkt *p)
{
	__u16 b[4];
	__u8 type;

	if (!p)
		return 0;
	if (p->end < (__u32)p->l4 + ICMP_LEN) {
		if (p->end < (__u32)p->l4 + 4 || ctx_load(ctx, p->l4, b, 4))
			return 0;
		p->icmp_type = b[0];
		p->icmp_code = b[0] >> 8;
		return 1;
	}
	if (ctx_load(ctx, p->l4, b, ICMP_LEN))
		return 0;
	type = b[0];
	p->icmp_type = type;
	p->icmp_code = b[0] >> 8;
	p->payload = p->l4 + ICMP_LEN;
	if (p->version == 4) {
		if (type == 0 || type == 8) {
			p->kind = KIND_ECHO;
			p->key.sport = b[2];
		} else if (type == 3 || type == 4 || type == 5 || type == 11 || type == 12) {
			return parse_quote(ctx, p);
		}
	} else {
		if (type == 128 || type == 129) {
			p->kind = KIND_ECHO;
			p->key.sport = b[2];
		} else if (type >= 1 && type <= 4) {
			return parse_quote(ctx, p);
		}
	}
	return 1;
}

enum parsed { PARSED, PARSE_PULL, PARSE_NOT_IP, PARSE_MALFORMED };

/* The end of the linear part is no reason to call a packet short. */
#define NEED(ptr, size)                                                          \
	if ((void *)(ptr) + (size) > end)                                        \
	return p->len > (__u32)(end - data) && ctx_can_pull ? PARSE_PULL : PARSE_MALFORMED

/* Reads a frame. */
static __always_inline int parse(ctx_t *ctx, struct pkt *p)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx), *ip, *t;
	__u32 off = ETH_LEN, rest;
	__u16 type;


	p->len = ctx_len(ctx);
	NEED(data, ETH_LEN);
	type = *(__u16 *)(data + 12);
	if (type == bpf_htons(0x8100) || type == bpf_htons(0x88a8)) {
		NEED(data, ETH_LEN + 4);
		type = *(__u16 *)(data + 16);
		off = ETH_LEN + 4;
		if (type == bpf_htons(0x8100) || type == bpf_htons(0x88a8)) {
			NEED(data, ETH_LEN + 8);
			type = *(__u16 *)(data + 20);
			off = ETH_LEN + 8;
		}
	}
	p->l3 = off;
	ip = data + off;
	if (type == bpf_htons(0x0800)) {
		__u32 header, total;
		__u16 field;

		NEED(ip, IP4_LEN);
		if (*(__u8 *)ip >> 4 != 4)
			return PARSE_MALFORMED;
		header = (*(__u8 *)ip & 15) * 4;
		total = bpf_ntohs(*(__u16 *)(ip + 2));
		if (header < IP4_LEN || total < header || off + header > p->len)
			return PARSE_MALFORMED;
		p->version = 4;
		p->ttl = *(__u8 *)(ip + 8);
		p->proto = *(__u8 *)(ip + 9);
		p->end = off + total;
		p->l4 = off + header;
		key_ip4(p->key.src, *(__u32 *)(ip + 12));
		key_ip4(p->key.dst, *(__u32 *)(ip + 16));
		field = *(__u16 *)(ip + 6);
		if (field & bpf_htons(0x3fff)) {
			p->later = (field & bpf_htons(0x1fff)) != 0;
			p->first = !p->later;
			p->id = bpf_ntohs(*(__u16 *)(ip + 4));
		}
		p->df = (field & bpf_htons(0x4000)) != 0;
	} else if (type == bpf_htons(0x86dd)) {
		NEED(ip, IP6_LEN);
		if (*(__u8 *)ip >> 4 != 6)
			return PARSE_MALFORMED;
		p->version = 6;
		p->df = 1;
		p->ttl = *(__u8 *)(ip + 7);
		p->proto = *(__u8 *)(ip + 6);
		p->end = off + IP6_LEN + bpf_ntohs(*(__u16 *)(ip + 4));
		p->l4 = off + IP6_LEN;
		copy16(p->key.src, ip + 8);
		copy16(p->key.dst, ip + 24);
		if (poses(p->key.src) || poses(p->key.dst))
			return PARSE_MALFORMED;
	} else {
		return PARSE_NOT_IP;
	}
	if (p->end > p->len) {
		p->end = p->len;
		p->cut = 1;
	}
	if (p->version == 6 && is_extension(p->proto)) {
		struct walk w = {.l4 = p->l4, .end = p->end, .proto = p->proto};

		if (!walk_extensions(ctx, &w))
			return PARSE_MALFORMED;
		p->l4 = w.l4;
		p->proto = w.proto;
		p->id = w.id;
		p->first = w.first;
		p->later = w.later;
	}
	key_word(&p->key.proto, p->proto);
	p->kind = kind_of(p->proto, p->version);
	p->payload = p->l4;
	if (p->later)
		return PARSED;
	if (p->kind == KIND_ICMP_OTHER) {
		return parse_icmp(ctx, p) ? PARSED : PARSE_MALFORMED;
	}
	if (p->kind == KIND_OTHER)
		return PARSED;
	data = ctx_data(ctx);
	end = ctx_end(ctx);
	t = data + (p->l4 & MAX_HEADERS);
	rest = p->end - p->l4;
	if (p->l4 > MAX_HEADERS)
		return PARSE_MALFORMED;
	if (p->kind == KIND_TCP) {
		__u32 header;

		if (rest < 20)
			return PARSE_MALFORMED;
		NEED(t, 20);
		header = (*(__u8 *)(t + 12) >> 4) * 4;
		if (header < 20)
			return PARSE_MALFORMED;
		p->tcp_flags = *(__u8 *)(t + 13);
		p->payload = p->l4 + header;
		if (header > rest && !p->first && !p->cut)
			return PARSE_MALFORMED;
	} else if (p->kind == KIND_UDP) {
		__u32 length;

		if (rest < UDP_LEN)
			return PARSE_MALFORMED;
		NEED(t, UDP_LEN);
		length = bpf_ntohs(*(__u16 *)(t + 4));
		if (length < UDP_LEN || (length > rest && !p->first && !p->cut))
			return PARSE_MALFORMED;
		p->payload = p->l4 + UDP_LEN;
	} else {
		if (rest < 12)
			return PARSE_MALFORMED;
		NEED(t, 12);
		p->payload = p->l4 + 12;
	}
	key_word(&p->key.sport, *(__u32 *)t);
	return PARSED;
}
