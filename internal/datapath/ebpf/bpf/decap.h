/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * decap.h: takes the tunnel of L3-DSR off at a backend (tunnel.h): packets to an
 * address of this machine from an allowed source are opened. A front end defines
 * ctx_t and the ctx_ functions before it includes this file.
 */
#pragma once

#include "tunnel.h"

struct tunnel_count {
	__u64 packets, bytes;
};

/* An address prefix; IPv4 is mapped. */
struct prefix {
	__u32 bits;
	__u8 addr[16];
};

struct local {
	__u8 addr[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct prefix);
	__type(value, __u32);
} allowed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct local);
	__type(value, __u32);
} locals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DECAP_END);
	__type(key, enum decap_end);
	__type(value, struct tunnel_count);
} tunnel_counts SEC(".maps");

static __always_inline bool tunnel_ours(const struct opening *o)
{
	struct local key;

	__builtin_memcpy(key.addr, o->to, 16);
	return bpf_map_lookup_elem(&locals, &key);
}

static __always_inline bool tunnel_allowed(const struct opening *o)
{
	struct prefix key = {.bits = 128};

	__builtin_memcpy(key.addr, o->from, 16);
	return bpf_map_lookup_elem(&allowed, &key);
}

static __always_inline int decap(ctx_t *ctx)
{
	struct opening o = {};
	struct tunnel_count *n;
	__u32 end, bytes = ctx_len(ctx);

	end = tunnel_open(ctx, &o);
	n = bpf_map_lookup_elem(&tunnel_counts, &end);
	if (n) {
		n->packets++;
		n->bytes += bytes;
	}
	if (end >= DECAP_REFUSED)
		return ctx_drop;
	return ctx_pass;
}
