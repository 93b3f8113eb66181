//go:build ignore

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * udpnat.bpf.c: established flows of the user-space UDP NAT, forwarded on the TCX
 * ingress hook. User space enters each flow as two entries, from the client to the
 * backend and back. A datagram gets the addresses and ports with which it would have
 * left user space, and goes on: on lo to the socket that it is for now, elsewhere
 * to the next hop, whose neighbour the kernel resolves as for its own packets. All
 * else passes untouched to the sockets, and so does what cannot be forwarded
 * exactly; every check is made before the first write.
 */
#include "tcx_ctx.h"

#include "map.h"
#include "tcx_access.h"
#include "rewrite.h"

/* What becomes of datagrams; read by user space from BTF: UDPNAT_X is x. */
enum udpnat_end {
	UDPNAT_OTHER,       /* passed: of no flow here, or no UDP */
	UDPNAT_SUSPENDED,   /* passed: this direction is user space's */
	UDPNAT_STALE,       /* passed: steering has to decide again */
	UDPNAT_UNSUITED,    /* passed: with a tag, options, extension headers, or of odd lengths */
	UDPNAT_TTL,         /* passed: the hop limit ends here */
	UDPNAT_TOO_BIG,     /* passed: larger than the MTU of the path */
	UDPNAT_NO_CHECKSUM, /* passed: IPv6 requires one */
	UDPNAT_FORWARD,     /* sent to the backend */
	UDPNAT_BACKWARD,    /* sent to the client */
	UDPNAT_FAILED,      /* dropped: the kernel refused after the first write */
	UDPNAT_END,
};

/* One direction of a flow: twice its id, and one more towards the client. */
struct udpnat_entry {
	struct flow_key key;
	__u32 src[4], dst[4]; /* as it leaves */
	__u16 sport, dport;
	__u32 epoch;          /* of the decision that the flow follows */
	__u32 ifindex;        /* where it leaves; LOOPBACK: to this machine itself */
	__u32 mtu;            /* of the path */
	__u32 gateway[4];     /* the neighbour to send to, IPv4 mapped */
	__u32 target;         /* whose datagrams are counted together */
	__u32 failed;         /* the program saw an ICMP error about the flow */
	__u8 pad[16];
};
_Static_assert(sizeof(struct udpnat_entry) == 128, "two cache lines");

/* Written by user space. */
struct udpnat_control {
	__u32 epoch;        /* entries of another one are stale */
	__u32 suspended[2]; /* the direction is user space's: to backends, to clients */
	__u32 pad;
};

/* What was forwarded for one target on one CPU: to the backend, to clients. */
struct udpnat_count {
	__u64 packets[2], bytes[2]; /* of user data */
};

const volatile __u32 udpnat_targets; /* per CPU in udpnat_counts */

enum { LOOPBACK = 1, FAMILY_IP4 = 2, FAMILY_IP6 = 10 };

MAP(HASH, udpnat_keys, struct flow_key, __u32, 1, 0);
MAP(ARRAY, udpnat_entries, __u32, struct udpnat_entry, 1, BPF_F_MMAPABLE);
MAP(ARRAY, udpnat_used, __u32, __u64, 1, BPF_F_MMAPABLE); /* tick of the last datagram of a flow, by its id */
MAP(ARRAY, udpnat_counts, __u32, struct udpnat_count, 1, BPF_F_MMAPABLE);
MAP(ARRAY, udpnat_controls, __u32, struct udpnat_control, 1, BPF_F_MMAPABLE);
MAP(PERCPU_ARRAY, udpnat_ends, enum udpnat_end, __u64, UDPNAT_END, 0);
MAP(PERCPU_ARRAY, udpnat_packets, __u32, struct pkt, 1, 0);

static __always_inline struct udpnat_entry *udpnat_entry_at(__u32 at) { return bpf_map_lookup_elem(&udpnat_entries, &at); }

/* The index of the entry of a key, and the entry if it is that of this very key: indexes are reused. */
static __always_inline struct udpnat_entry *udpnat_find(const struct flow_key *key, __u32 *at)
{
	const __u32 *found = bpf_map_lookup_elem(&udpnat_keys, key);
	const __u64 *a = (const __u64 *)key, *b;
	struct udpnat_entry *entry;

	if (!found)
		return NULL;
	*at = *found;
	entry = udpnat_entry_at(*at);
	if (!entry)
		return NULL;
	b = (const __u64 *)&entry->key;
	return (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]) ? NULL : entry;
}

/* An ICMP error about a flow, such as a smaller MTU or a closed port, is for the socket; the flow returns to user space, which
 * looks at its path again. The key of p is that of the quoted packet's answers. */
static __always_inline void udpnat_error(const struct pkt *p)
{
	__u32 at = 0;
	struct udpnat_entry *entry = udpnat_find(&p->key, &at);

	if (!entry)
		return;
	entry->failed = 1;
	entry = udpnat_entry_at(at ^ 1);
	if (entry)
		entry->failed = 1;
}

/* Whether a datagram can be forwarded exactly; its end if not. */
static __always_inline int udpnat_check(ctx_t *ctx, const struct pkt *p, const struct udpnat_entry *entry)
{
	void *udp = ctx_data(ctx) + (p->l4 & MAX_HEADERS);

	if (p->first | p->later | p->cut || p->l3 != ETH_LEN || p->l4 - p->l3 != (p->version == 4 ? IP4_LEN : IP6_LEN) ||
	    ctx->vlan_present || ctx->pkt_type)
		return UDPNAT_UNSUITED;
	if (udp + UDP_LEN > ctx_end(ctx) || p->l4 + bpf_ntohs(*(__u16 *)(udp + 4)) != p->end)
		return UDPNAT_UNSUITED;
	if (p->version == 6 && !*(__u16 *)(udp + 6))
		return UDPNAT_NO_CHECKSUM;
	if (entry->ifindex != LOOPBACK && p->ttl <= 1)
		return UDPNAT_TTL;
	return ctx_segment(ctx, p) > entry->mtu ? UDPNAT_TOO_BIG : UDPNAT_OTHER;
}

/* Sends a datagram that was rewritten on its way; returns the hook's verdict. */
static __always_inline int udpnat_send(ctx_t *ctx, const struct pkt *p, const struct udpnat_entry *entry)
{
	struct bpf_redir_neigh next = {};

	if (entry->ifindex == LOOPBACK) /* packets on lo have their route to this machine already; others need one */
		return ctx->ifindex == LOOPBACK ? ctx_pass : bpf_redirect_neigh(LOOPBACK, NULL, 0, 0);
	if (poses(entry->gateway)) {
		next.nh_family = FAMILY_IP4;
		next.ipv4_nh = entry->gateway[3];
	} else {
		next.nh_family = FAMILY_IP6;
		for (int i = 0; i < 4; i++) /* by words: the address is not aligned to eight bytes */
			next.ipv6_nh[i] = entry->gateway[i];
	}
	return bpf_redirect_neigh(entry->ifindex, &next, sizeof(next), 0);
}

static __always_inline void udpnat_count(ctx_t *ctx, const struct pkt *p, const struct udpnat_entry *entry, __u32 at)
{
	__u32 i = bpf_get_smp_processor_id() * udpnat_targets + entry->target, id = at >> 1, back = at & 1;
	__u64 now = bpf_jiffies64(), *used = bpf_map_lookup_elem(&udpnat_used, &id);
	struct udpnat_count *n = bpf_map_lookup_elem(&udpnat_counts, &i);

	if (used && *used != now)
		*used = now;
	if (!n)
		return;
	n->packets[back] += ctx->gso_segs ?: 1;
	n->bytes[back] += p->end - p->payload;
}

static __always_inline int udpnat_forward(ctx_t *ctx, struct pkt *p, const struct udpnat_control *control, int *verdict)
{
	struct udpnat_entry *entry;
	__u32 at = 0;
	int problem;

	if (p->kind != KIND_UDP)
		return UDPNAT_OTHER;
	entry = udpnat_find(&p->key, &at);
	if (!entry)
		return UDPNAT_OTHER;
	if (control->suspended[at & 1])
		return UDPNAT_SUSPENDED;
	if (entry->epoch != control->epoch || entry->failed)
		return UDPNAT_STALE;
	problem = udpnat_check(ctx, p, entry);
	if (problem)
		return problem;
	p->nat.set_src = p->nat.set_dst = 1;
	p->nat.sport = entry->sport;
	p->nat.dport = entry->dport;
	copy16(p->nat.src, entry->src);
	copy16(p->nat.dst, entry->dst);
	if (entry->ifindex != LOOPBACK && !count_down(ctx, p))
		return UDPNAT_FAILED;
	if (!nat_plain_here(ctx, p))
		return UDPNAT_FAILED;
	udpnat_count(ctx, p, entry, at);
	*verdict = udpnat_send(ctx, p, entry);
	return at & 1 ? UDPNAT_BACKWARD : UDPNAT_FORWARD;
}

SEC("tcx/ingress")
int weir_udpnat(struct __sk_buff *ctx)
{
	int end = UDPNAT_OTHER, parsed = PARSE_MALFORMED, verdict = ctx_pass;
	__u32 zero = 0, i;
	const struct udpnat_control *control = bpf_map_lookup_elem(&udpnat_controls, &zero);
	struct pkt *p = bpf_map_lookup_elem(&udpnat_packets, &zero);
	__u64 *n;

	if (!control || !p)
		return ctx_pass;
	for (int pulled = 0; pulled < 2; pulled++) {
		__builtin_memset(p, 0, offsetof(struct pkt, nat.src));
		parsed = parse(ctx, p);
		if (parsed != PARSE_PULL || !ctx_pull(ctx, p))
			break;
	}
	if (parsed != PARSED)
		return ctx_pass;
	if (p->kind == KIND_ICMP_ERROR) {
		udpnat_error(p);
		return ctx_pass;
	}
	end = udpnat_forward(ctx, p, control, &verdict);
	if (end == UDPNAT_FAILED)
		verdict = ctx_drop;
	i = end;
	n = bpf_map_lookup_elem(&udpnat_ends, &i);
	if (n)
		++*n;
	return verdict;
}

char __license[] SEC("license") = "Dual BSD/GPL";
