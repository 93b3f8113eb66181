/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * bench.bpf.c: the packet generator of weir bench ebpf. BPF_PROG_TEST_RUN gives
 * a program the same buffer over and over, with what the last run left in it;
 * vary writes every header anew from a template, as packet n of a number of
 * flows, and goes on to the program under test, or to nothing.
 */
#include <linux/bpf.h>
#include <linux/types.h>
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
	__u32 pass;    /* to the stack instead of dropping, after the program under test */
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
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} jumps SEC(".maps");

SEC("xdp")
int vary(struct xdp_md *ctx)
{
	__u32 zero = 0, length = ctx->data_end - ctx->data;
	struct template *t = bpf_map_lookup_elem(&templates, &zero);
	void *data, *end;
	__u64 *to;
	__u64 n;

	if (!t)
		return XDP_ABORTED;
	if (length > t->length && bpf_xdp_adjust_head(ctx, length - t->length))
		return XDP_ABORTED; /* a tunnel header of the last run */
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + HEAD + 8 * WORDS > end)
		return XDP_ABORTED;
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
	bpf_tail_call(ctx, &jumps, zero);
	return XDP_ABORTED;
}

SEC("xdp")
int nothing(struct xdp_md *ctx) { return XDP_DROP; }

char __license[] SEC("license") = "Dual BSD/GPL";
