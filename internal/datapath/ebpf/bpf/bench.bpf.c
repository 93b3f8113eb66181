//go:build ignore

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * bench.bpf.c: the packet generator of weir bench ebpf. BPF_PROG_TEST_RUN gives
 * a program the same buffer over and over, with what the last run left in it;
 * vary writes every header again from a template, as packet n of a number of
 * flows, and goes on to the program under test, or to nothing.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Words start at 6, so that no field of a header lies in two of them, and are
 * complete when they are written: a load that one store cannot answer waits for
 * the cache, which no packet from a network card makes a program do. */
enum { HEAD = 6, WORDS = 13 };

struct vary_field { /* bits of the flow's number, XORed into a word */
	__u32 word;
	__u32 shift;
	__u64 mask;   /* of the number; 0: none */
};

struct template {
	__u64 head;
	__u64 words[16]; /* as sent last */
	__u64 plain[16];
	struct vary_field vary, port; /* port has bits from the fourth on */
	__u32 flows;     /* a power of two */
	__u32 length;    /* of the frame */
	__u32 ifindex;   /* that bpf_fib_lookup is requested */
	__u64 next;    /* packet number */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct template);
} templates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} jumps SEC(".maps");

/* Writes the next packet's headers. */
static __always_inline bool write_next(struct template *t, void *data, void *end)
{
	__u64 *to;
	__u64 n;

	if (data + HEAD + 8 * WORDS > end)
		return false;
	/* The multiplier spreads neighbours over the table, as real clients are. */
	n = (__u32)(t->next++ * 0x9e3779b1u) & (t->flows - 1);
	t->words[t->vary.word & 15] = t->plain[t->vary.word & 15];
	t->words[t->port.word & 15] = t->plain[t->port.word & 15];
	t->words[t->vary.word & 15] ^= (n & t->vary.mask) << (t->vary.shift & 63);
	t->words[t->port.word & 15] ^= (n >> 4 & t->port.mask) << (t->port.shift & 63);
	*(__u32 *)data = t->head;
	*(__u16 *)(data + 4) = t->head >> 32;
	to = data + HEAD;
#pragma unroll
	for (int i = 0; i < WORDS; i++)
		to[i] = t->words[i];
	return true;
}

SEC("xdp")
int vary(struct xdp_md *ctx)
{
	__u32 zero = 0, length = ctx->data_end - ctx->data;
	struct template *t = bpf_map_lookup_elem(&templates, &zero);

	if (!t)
		return XDP_ABORTED;
	if (length > t->length && bpf_xdp_adjust_head(ctx, length - t->length))
		return XDP_ABORTED; /* a tunnel header of the last run */
	if (!write_next(t, (void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &jumps, zero);
	return XDP_ABORTED;
}

SEC("xdp")
int nothing(struct xdp_md *ctx) { return XDP_DROP; }

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} jumps_tcx SEC(".maps");

enum { TCX_FAILED = 5 }; /* no verdict that a program gives */

SEC("tcx/ingress")
int vary_tcx(struct __sk_buff *ctx)
{
	__u32 zero = 0;
	struct template *t = bpf_map_lookup_elem(&templates, &zero);

	if (!t || !write_next(t, (void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return TCX_FAILED;
	bpf_tail_call(ctx, &jumps_tcx, zero);
	return TCX_FAILED;
}

SEC("tcx/ingress")
int nothing_tcx(struct __sk_buff *ctx) { return 2; /* TCX_DROP */ }

/* What others do for each packet, in the same generator: the flow table that
 * Katran and Cilium are built on, and the kernel's routing table. */

enum { LRU_SIZE = 1 << 20 }; /* a test makes it smaller */

struct tuple { /* as in Katran: 40 bytes, both families */
	__u32 src[4];
	__u32 dst[4];
	__u32 ports;
	__u8 protocol;
	__u8 pad[3];
};

struct chosen { /* as in Katran: a backend and when it was used */
	__u32 backend;
	__u64 seen;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, LRU_SIZE);
	__type(key, struct tuple);
	__type(value, struct chosen);
} lru_flows SEC(".maps");

/* What a comparator returns: the generator's user holds it to what it wanted. */
enum { KNOWN = 1, INSERTED = 2 };

/* Reads a UDP or TCP packet without options. Returns its family, 0 if none. */
static __always_inline int read_tuple(void *data, void *end, struct tuple *t)
{
	struct ethhdr *eth = data;

	if (data + sizeof(*eth) > end)
		return 0;
	data += sizeof(*eth);
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = data;

		if (data + sizeof(*ip) + 4 > end || ip->ihl != 5 || (ip->frag_off & bpf_htons(0x3fff)))
			return 0;
		t->src[0] = ip->saddr;
		t->dst[0] = ip->daddr;
		t->protocol = ip->protocol;
		t->ports = *(__u32 *)(ip + 1);
		return 2; /* AF_INET */
	}
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = data;

		if (data + sizeof(*ip) + 4 > end)
			return 0;
		__builtin_memcpy(t->src, &ip->saddr, 32);
		t->protocol = ip->nexthdr;
		t->ports = *(__u32 *)(ip + 1);
		return 10; /* AF_INET6 */
	}
	return 0;
}

static __always_inline int look_up(void *data, void *end)
{
	struct tuple t = {};
	struct chosen *c;

	if (!read_tuple(data, end, &t))
		return 0;
	if (t.protocol != 17 && t.protocol != 6)
		return 0;
	c = bpf_map_lookup_elem(&lru_flows, &t);
	if (!c) {
		struct chosen first = { .backend = 1, .seen = bpf_jiffies64() };

		return bpf_map_update_elem(&lru_flows, &t, &first, BPF_ANY) ? 0 : INSERTED;
	}
	c->seen = bpf_jiffies64();
	return KNOWN;
}

static __always_inline int route(void *ctx, void *data, void *end)
{
	struct bpf_fib_lookup f = {};
	struct tuple t = {};
	__u32 zero = 0;
	struct template *template = bpf_map_lookup_elem(&templates, &zero);
	int family = read_tuple(data, end, &t);

	if (!template || !family)
		return 0;
	f.family = family;
	f.ifindex = template->ifindex;
	f.l4_protocol = t.protocol;
	__builtin_memcpy(f.ipv6_src, t.src, 16);
	__builtin_memcpy(f.ipv6_dst, t.dst, 16);
	return bpf_fib_lookup(ctx, &f, sizeof(f), 0) ? 0 : KNOWN;
}

SEC("xdp")
int lru(struct xdp_md *ctx) { return look_up((void *)(long)ctx->data, (void *)(long)ctx->data_end); }

SEC("xdp")
int fib(struct xdp_md *ctx) { return route(ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end); }

SEC("tcx/ingress")
int lru_tcx(struct __sk_buff *ctx) { return look_up((void *)(long)ctx->data, (void *)(long)ctx->data_end); }

SEC("tcx/ingress")
int fib_tcx(struct __sk_buff *ctx) { return route(ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end); }

char __license[] SEC("license") = "Dual BSD/GPL";
