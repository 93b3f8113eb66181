/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * types.h: everything that both sides of the map boundary know: keys, values,
 * reasons, limits. Go types are generated from this file; the names of enum
 * reason are read from BTF at load and must all be names of lb.Reason.
 *
 * Addresses are 16 bytes, IPv4 mapped (::ffff:a.b.c.d), addresses and ports are
 * in network order, everything else in host order (little-endian).
 */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Ends of a packet's slot; lb.Reason of the same name. The order groups the
 * actions: pass, forward, hold, answer, drop. */
enum reason {
	REASON_NONE,
	REASON_NOT_SERVICE,
	REASON_NOT_IP,
	REASON_NOT_STEERED,
	REASON_ICMP_UNKNOWN,
	REASON_NO_NEIGHBOUR,
	REASON_NO_BACKEND_MARK,
	REASON_FRAGMENT,
	REASON_CID,
	REASON_CID_UNKNOWN,
	REASON_CONNTRACK,
	REASON_MAGLEV,
	REASON_EARLIER_TABLE,
	REASON_REPLY,
	REASON_ICMP_ERROR,
	REASON_ICMP_REPLY,
	REASON_ECHO,
	REASON_OUTBOUND,
	REASON_TIER,
	REASON_FRAGMENT_EARLY,
	REASON_ECHO_ANSWERED,
	REASON_MALFORMED,
	REASON_FRAGMENT_UNKNOWN,
	REASON_HOLD_FULL,
	REASON_FRAGMENT_TABLE_FULL,
	REASON_NO_BACKEND,
	REASON_SERVICE_DOWN,
	REASON_FLOW_TABLE_FULL,
	REASON_NEW_FLOW_RATE,
	REASON_SNAT_EXHAUSTED,
	REASON_TOO_BIG,
	REASON_TTL_EXPIRED,
	REASON_SEND_FAILED,
	REASON_SHARE_REFUSED,
	REASON_ECHO_REFUSED,
	REASON_ECHO_RATE,
	REASON_SOURCE_REFUSED,
	REASON_TUNNEL_REFUSED,
	REASON_TUNNEL_CONGESTED,
	REASON_END,
};

enum limits {
	MAX_SERVICES = 2048,   /* stable service numbers, from 1; 0 is no service */
	MAX_BACKENDS = 1 << 16, /* slots */
	CLIENT_PREFIXES = 1 << 16, /* of both generations */
	MAX_LENGTHS = 24,      /* distinct prefix lengths of VIPs */
	MAX_PROBE = 8,         /* elements that an address may be away from its home in vips */
	VIP_SHIFT = 49,        /* of the hash of vips: an address's last byte moves its highest bits only */
	VIP_PORTS = 5,         /* ports and ranges kept in the address's own line */
	MAX_RANGES = 64,       /* ranges of one prefix and protocol beyond that */
	MAX_LAYOUTS = 4,       /* CID layouts of one service */
	MAX_RECORDS = 8,       /* DTLS records looked at in one datagram */
	MAX_EXTENSIONS = 8,    /* IPv6 extension headers walked */
	BUCKET_SLOTS = 4,              /* flows in one bucket */
	CLIENT_HOPS = 4096,    /* different next hops towards clients remembered */
	WANTED = 1024,         /* addresses that user space was asked to resolve */
	CHECKED_SETS = 1 << 16, /* flows whose entries were found right, two in a set */
	SPARE_HOPS = 1024,     /* and while there are more: two for each CPU */
	NAT_BACKEND_WORDS = 64,
	REASONS = 64,          /* counters of one service */
	HOLD_BYTES = 2048,     /* greatest frame held for its first fragment */
	TRACE_BYTES = 192,     /* bytes of a packet in a trace event */
};

enum mode { MODE_NAT, MODE_L2DSR, MODE_L3DSR, MODE_MARK };
enum tunnel { TUNNEL_NONE, TUNNEL_IPIP, TUNNEL_GUE };
enum affinity { AFFINITY_FLOW, AFFINITY_SOURCE, AFFINITY_CID, AFFINITY_NO_SOURCE_PORT, AFFINITY_DESTINATION_PORT };
enum state { STATE_UP, STATE_DRAINING, STATE_DOWN };

struct flow_key {
	__u32 src[4];
	__u32 dst[4];
	__u16 sport;
	__u16 dport;
	__u8 proto;
	__u8 pad[3];
};
_Static_assert(sizeof(struct flow_key) == 40, "the hashed form of flow.Key");

/* One flow in one bucket. fingerprint identifies the flow (0: free, 1: being
 * written); meta is, from the lowest bit:
 *
 *   flows:     16 backend slot, 8 epoch, 2 flow_state, 1 proven,   37 expiry in ticks
 *   replies:   24 number of a flow, 2 flow_state, 1 answered, 37 expiry in ticks
 *   fragments: 24 0, 2 fragment_rank (frag.h), 1 0, 37 expiry in ticks
 */
struct table_slot {
	__u64 fingerprint;
	__u64 meta;
};

struct bucket {
	struct table_slot slots[BUCKET_SLOTS];
};
_Static_assert(sizeof(struct bucket) == 64, "one cache line");

enum flow_state { FLOW_PLAIN, FLOW_OPENING, FLOW_ESTABLISHED, FLOW_CLOSING };

enum { FLOW_PROVEN = 4 }; /* with flow_state in table_slot.meta */

/* What a hit seldom needs, at the same number as its slot. */
struct flow_entry {
	struct flow_key key; /* as the client sends */
	__u64 reply;         /* fingerprint in replies; 0: replies are not translated */
	__u32 target;        /* slot and epoch, as in table_slot.meta */
	__u32 nat;           /* index of the new source in snat_addresses + 1 */
	__u16 nat_port;      /* its port */
	__u16 service;       /* stable number */
	__u32 hop;           /* next hop of its replies: 12 index in client_hops, 20 when and by which routes (hops.h) */
};
_Static_assert(sizeof(struct flow_entry) == 64, "one cache line");

/* What was decided for a datagram in fragments, at the same number as its slot. */
struct fragment_entry {
	__u64 flow;     /* fingerprint of its flow; 0: none is needed */
	__u32 number;   /* of that flow */
	__u32 target;   /* slot and epoch, as in table_slot.meta */
	__u8 kind;      /* fragment_kind */
	__u8 reason;    /* of FRAGMENT_DECIDED */
	__u8 back;      /* from the backend to the client */
	__u8 held;      /* of FRAGMENT_WAITING: how many */
	__u16 service;  /* stable number */
	__u8 nat;
	__u8 pad[9];
};
_Static_assert(sizeof(struct fragment_entry) == 32, "two in a cache line");

enum fragment_kind { FRAGMENT_FORWARD, FRAGMENT_DECIDED, FRAGMENT_WAITING, FRAGMENT_LOST };

/* Where a packet leaves: link addresses as in the frame, in words. */
struct out {
	__u8 dmac[6];
	__u8 smac[6];
	__u32 ifindex;
	__u16 mtu;
	__u16 pad;
};
_Static_assert(sizeof(struct out) == 20, "no padding");

/* Where packets leave. Two copies in struct backend: the one that cur does not
 * name is written, then cur is flipped, so no one sees half an address. */
struct next_hop {
	__u8 dmac[6];
	__u8 smac[6];
	__u32 ifindex;
	__u16 mtu;   /* of the path to the backend, tunnel not yet taken off */
	__u8 state;  /* hop_state */
	__u8 pad;
};
_Static_assert(sizeof(struct next_hop) == 20, "two fit into a backend");

enum hop_state { HOP_NONE, HOP_READY, HOP_FAILED };

/* One backend for packets of one family, number 2 * slot + (family is IPv6). */
struct backend {
	__u32 addr[4];  /* new destination, or of the tunnel */
	__u16 port;     /* 0: the client's */
	__u8 state;
	__u8 epoch;
	__u16 service;  /* stable number */
	__u8 family;    /* 4 or 6, 0: none for this family */
	__u8 cur;       /* which next hop */
	struct next_hop hop[2];
};
_Static_assert(sizeof(struct backend) == 64, "one cache line");

struct vip_port {
	__u16 first, last; /* host order */
	__u16 service;     /* stable number, or from MAX_SERVICES on number of a set of clients */
	__u8 proto;
	__u8 pad;
};

/* Clients of VIPs that several services share (lb.Clients). Each set has the prefixes of
 * both families, the shortest one with what all other clients get. */
struct client_prefix {
	__u32 bits;    /* of set and address */
	__u32 set;     /* number << 1, 1 for IPv6; the lowest bit of the number is the generation's */
	__u32 addr[4];
};

enum { CLIENT_REFUSED = 1 << 16 }; /* with the number of the service that counts the packet */

/* One VIP prefix; open addressing. */
struct vip {
	__u32 addr[4];
	__u8 bits;     /* prefix length + 1; 0: free element */
	__u8 ports;    /* used in port[] */
	__u16 echo;    /* the service that answers for the address as such; as in vip_port */
	__u32 more;    /* number of this prefix in vports and vranges; 0: nothing there */
	struct vip_port port[VIP_PORTS];
};
_Static_assert(sizeof(struct vip) == 64, "one cache line");

struct vport_key { /* an exact port beyond vip.port[] */
	__u32 vip;
	__u16 port;
	__u8 proto;
	__u8 pad;
};

struct cid_layout {
	__u32 owners, owners_size; /* first element; owner ids below owners_size have elements, by number */
	__u8 length;
	__u8 owner_offset, owner_bits;
	__u8 rotation; /* value of service.rotation_bits */
};

struct service {
	__u32 maglev, maglev_size;   /* first element and number of elements */
	__u32 flow_cost;             /* ns of credit that a new flow costs; 0: no limit */
	__u32 ttl_udp, ttl_opening, ttl_open, ttl_closing, ttl_sctp; /* ms; ~0 never */
	__u32 earlier;               /* first element of lb.Service.Earlier (for TCP, then for the rest) + 1; 0: none */
	__u16 id;                    /* stable number */
	__u8 mode, tunnel, affinity;
	__u8 down;
	__u8 cid_protocols;
	__u8 layouts;
	struct cid_layout layout[MAX_LAYOUTS];
	__u16 snat_first, snat_last; /* host order */
	__u16 snat;                  /* first of its addresses in snat_addresses */
	__u8 snat4, snat6;           /* how many of each family, IPv4 first */
	__u8 flags;                  /* SERVICE_ */
	__u8 has_snat;
	__u8 rotation_offset, rotation_bits; /* of all layouts */
	__u32 crowded_cost;          /* ns of credit of an entry without replies in a crowded table */
	__u32 outer4;                /* source of the tunnel */
	__u32 outer6[4];
};
_Static_assert(sizeof(struct service) == 128, "two cache lines");

enum {
	SERVICE_MORE_OWNERS = 1, /* owner ids without an element exist (large_owners) */
	SERVICE_ANSWERS = 2,     /* pings are answered here (echo.h) */
};

/* One generation; two of them, the active one is named by control.active. */
struct generation {
	__u64 sip[2];   /* lb.Snapshot.HashKey */
	__u64 mult[3];  /* hash of vips */
	__u32 lengths;
	__u32 outbound; /* its set in outbounds; 0: no backend may start flows */
	__u64 nat_backends[NAT_BACKEND_WORDS]; /* Bloom filter of the backends' addresses in mode NAT */
	struct {
		__u64 mask[2];
		__u32 bits, pad;
	} length[MAX_LENGTHS];
};

/* Where a backend answers, and what the flows get that it starts from there. */
struct outbound_key {
	__u32 addr[4];
	__u32 set;  /* of one generation */
	__u16 port;
	__u16 pad;
};

struct outbound {
	__u32 vip[4];
	__u16 port;
	__u16 service; /* stable number */
	__u32 slot;
};

struct control {
	__u32 active;    /* number of the generation; its lowest bit says which of the two it is */
	__u32 routes;    /* number of the routing state; caches of another one are stale */
	__u64 now;       /* ms, read only where params.clock is CLOCK_MANUAL */
	__u32 trace;     /* 0: off */
	__u32 held;      /* early fragments in user space's hands */
	__u64 crowded;   /* until this tick more than three quarters of flows are in use */
	__u32 tunnels;   /* a bit for each generation: tunnels end here (inbound.h) */
	__u32 pad;
};

struct count {
	__u64 packets, bytes;
};

/* Live entries of flows that made room for others. */
struct eviction_count {
	__u64 evicted;   /* unproven ones, for new flows */
	__u64 displaced; /* proven ones, for packets whose connection id names a live owner */
};

struct backend_count {
	struct count in, out; /* to the backend; from it, where we see that */
	__u64 opened;         /* flows */
};

struct reason_counts {
	struct count by_reason[REASONS];
};
