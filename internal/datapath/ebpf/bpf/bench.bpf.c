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

enum { TEMPLATE = 112 };

struct template {
	__u64 bytes[TEMPLATE / 8];
	__u32 flows;   /* a power of two */
	__u32 vary;    /* offset of the 4 bytes that name the flow; 0: none */
	__u32 port;    /* offset of 2 more */
	__u32 id;      /* offset of an IPv4 id that names it instead; 0: none */
	__u32 length;  /* of the frame */
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
	__u32 n;

	if (!t)
		return XDP_ABORTED;
	if (length > t->length && bpf_xdp_adjust_head(ctx, length - t->length))
		return XDP_ABORTED; /* a tunnel header of the last run */
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + TEMPLATE > end)
		return XDP_ABORTED;
	to = data;
#pragma unroll
	for (int i = 0; i < TEMPLATE / 8; i++)
		to[i] = t->bytes[i];
	/* The multiplier spreads neighbours over the table, as real clients are. */
	n = (t->next++ * 0x9e3779b1u) & (t->flows - 1);
	if (t->vary) {
		__u32 *at = data + (t->vary & 63);

		if ((void *)(at + 1) > end)
			return XDP_ABORTED;
		*at ^= n;
	}
	if (t->port) {
		__u16 *at = data + (t->port & 63);

		if ((void *)(at + 1) > end)
			return XDP_ABORTED;
		*at ^= n >> 4;
	}
	if (t->id) {
		__u16 *at = data + (t->id & 63);

		if ((void *)(at + 1) > end)
			return XDP_ABORTED;
		*at ^= n;
	}
	bpf_tail_call(ctx, &jumps, zero);
	return XDP_ABORTED;
}

SEC("xdp")
int nothing(struct xdp_md *ctx) { return XDP_DROP; }

char __license[] SEC("license") = "Dual BSD/GPL";
