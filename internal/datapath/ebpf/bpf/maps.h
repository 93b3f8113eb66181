/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * maps.h: the tables of the balancer. Sizes given as 1 are set at load. Arrays
 * that user space reads or writes in place are mapped into memory.
 */
#pragma once

#include "base.h"

enum { SNAT_POOLS = 16 }; /* of one service: searches (0) or taken ports (8), IPv6 (4), then TCP, UDP, echo */

struct slot_line { /* a line of a Maglev or owner table: 4 backend slots */
	__u16 slot[4];
};

struct addr {
	__u32 word[4];
};

struct vport_range {
	__u16 first, last, service, pad;
};

struct vip_ranges { /* ranges of one prefix and protocol, narrowest first */
	__u32 count;
	__u32 pad;
	struct vport_range range[MAX_RANGES];
};

struct vip_ranges_key {
	__u32 vip;
	__u32 proto;
};

struct owner_key {
	__u32 owners; /* of struct cid_layout: names the table that the id is not in */
	__u32 owner;
};

struct checked { /* checked.h */
	__u32 word[2];
} __attribute__((aligned(8)));

/* What was decided for the last packet of this CPU, for tests. */
struct verdict {
	enum reason reason;
	__u32 service;  /* stable number */
	__u32 backend;  /* slot + 1 */
	__u32 ifindex;
	__u32 mark;
	__u32 new;
};

struct event { /* a held fragment, or a traced packet */
	__u64 time;     /* ticks */
	__u32 kind;     /* event_kind */
	__u32 reason;
	__u32 service;  /* stable number */
	__u32 backend;  /* slot + 1 */
	__u32 ifindex;
	__u32 length;   /* of the packet */
	__u32 captured; /* bytes in data */
	__u32 pad;
};

enum event_kind { EVENT_HELD, EVENT_RELEASE, EVENT_TRACE, EVENT_NEIGHBOUR };

MAP(ARRAY, generations, __u32, struct generation, 2, BPF_F_MMAPABLE);
MAP(ARRAY, vips, __u32, struct vip, 1, BPF_F_MMAPABLE);
MAP(HASH, vports, struct vport_key, __u16, 16384, BPF_F_NO_PREALLOC);
MAP(HASH, vranges, struct vip_ranges_key, struct vip_ranges, 4096, BPF_F_NO_PREALLOC);
MAP(LPM_TRIE, clients, struct client_prefix, __u32, CLIENT_PREFIXES, BPF_F_NO_PREALLOC);
MAP(ARRAY, services, __u32, struct service, 2 * MAX_SERVICES, BPF_F_MMAPABLE);
MAP(ARRAY, backends, __u32, struct backend, 2 * MAX_BACKENDS, BPF_F_MMAPABLE);
MAP(ARRAY, maglev, __u32, struct slot_line, 1, BPF_F_MMAPABLE);
MAP(ARRAY, owners, __u32, struct slot_line, 1, BPF_F_MMAPABLE);
MAP(HASH, large_owners, struct owner_key, __u32, 65536, BPF_F_NO_PREALLOC);
MAP(ARRAY, snat_addresses, __u32, struct addr, 4096, 0);
MAP(ARRAY, snat_next, __u32, __u32, MAX_SERVICES, 0); /* where the next sweep of a pool begins */
MAP(ARRAY, snat_searches, __u32, __u64, MAX_SERVICES * SNAT_POOLS, 0); /* credit of failed attempts (conntrack.h) */
MAP(ARRAY, flows, __u32, struct bucket, 1, BPF_F_MMAPABLE);
MAP(ARRAY, flow_entries, __u32, struct flow_entry, 1, BPF_F_MMAPABLE);
MAP(ARRAY, checked, __u32, struct checked, CHECKED_SETS, 0);
MAP(ARRAY, replies, __u32, struct bucket, 1, BPF_F_MMAPABLE);
MAP(ARRAY, fragments, __u32, struct bucket, 1, BPF_F_MMAPABLE);
MAP(ARRAY, fragment_entries, __u32, struct fragment_entry, 1, BPF_F_MMAPABLE);
MAP(ARRAY, rates, __u32, __u64, 2 * MAX_SERVICES + 3, BPF_F_MMAPABLE); /* rate.h */
MAP(ARRAY, wanted, __u32, __u64, WANTED, BPF_F_MMAPABLE);
MAP(HASH, outbounds, struct outbound_key, struct outbound, 4 * MAX_BACKENDS, BPF_F_NO_PREALLOC);
MAP(HASH, nat_backends, struct addr, __u32, 65536, BPF_F_NO_PREALLOC);
/* Each entry of a PERCPU_ARRAY is an allocation of its own: few entries, or elements for each CPU in one array. */
MAP(PERCPU_ARRAY, service_counts, __u32, struct reason_counts, MAX_SERVICES, 0);
MAP(ARRAY, backend_counts, __u32, struct backend_count, MAX_BACKENDS, BPF_F_MMAPABLE); /* for each possible CPU */
MAP(PERCPU_ARRAY, tunnel_counts, __u32, struct count, 8, 0); /* by decap_end */
MAP(PERCPU_ARRAY, eviction_counts, __u32, struct eviction_count, 1, 0);
MAP(PERCPU_ARRAY, verdicts, __u32, struct verdict, 1, 0);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");
