/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * cid.h: finds a connection id in a UDP payload and the owner id in it, as
 * cid.Set.Find does: DTLS 1.2 (RFC 9146), DTLS 1.3 (RFC 9147), QUIC (RFC 9000
 * section 17). Layouts are clear ones; masked ones are refused at compile time.
 */
#pragma once

#include "parse.h"

enum { CID_DTLS12 = 1, CID_DTLS13 = 2, CID_QUIC = 4 };
enum { DTLS_HEADER = 13, CID_MAX = 20, QUIC_HEADER = 6 };
enum cid_found { CID_NONE, CID_FOUND, CID_KNOWN };

/* Where the CID of a layout starts and how long it is; length 0: none. */
struct cid_place {
	__u32 at;
	__u32 length;
};

static __always_inline bool quic_server_chose(const __u8 *b)
{
	__u32 version = (__u32)b[1] << 24 | (__u32)b[2] << 16 | (__u32)b[3] << 8 | b[4];
	__u8 type = b[0] >> 4 & 3;

	return (version == 1 && type >= 2) || (version == 0x6b3343cf && (type == 3 || type == 0));
}

/* Walks DTLS records from place->at to the first with a CID. The length wanted
 * is in place->length. Returns 1 if there is one. */
__noinline int cid_locate(ctx_t *ctx, struct cid_place *place, __u32 end, __u32 protocols)
{
	__u8 b[16];
	__u32 at, length, start;

	if (!place)
		return 0;
	start = at = place->at;
	length = place->length;
	for (int i = 0; i < MAX_RECORDS; i++) {
		__u32 rest = end - at;
		__u8 first;

		if (at >= end || ctx_load(ctx, at, b, 1))
			return 0;
		first = b[0];
		if (first == 25) {
			__u32 body;

			if (!(protocols & CID_DTLS12) || !length || rest < DTLS_HEADER + length)
				return 0;
			if (ctx_load(ctx, at, b, 3) || b[1] != 0xfe || b[2] != 0xfd)
				return 0;
			if (ctx_load(ctx, at + 11 + length, b, 2))
				return 0;
			body = (__u32)b[0] << 8 | b[1];
			if (DTLS_HEADER + length + body > rest)
				return 0;
			place->at = at + 11;
			return 1;
		}
		if (first >= 20 && first <= 26) {
			__u32 n;

			if (!(protocols & (CID_DTLS12 | CID_DTLS13)) || rest < DTLS_HEADER)
				return 0;
			if (ctx_load(ctx, at, b, DTLS_HEADER) || b[1] != 0xfe)
				return 0;
			n = DTLS_HEADER + ((__u32)b[11] << 8 | b[12]);
			if (n > rest)
				return 0;
			at += n;
			continue;
		}
		if ((first & 0xe0) == 0x20) {
			if (!(protocols & CID_DTLS13) || !(first & 0x10) || !length || rest < 1 + length)
				return 0;
			place->at = at + 1;
			return 1;
		}
		if (first < 0x40 || at != start || !(protocols & CID_QUIC))
			return 0;
		if (!(first & 0x80)) {
			if (!length || rest < 1 + length)
				return 0;
			place->at = at + 1;
			return 1;
		}
		if (rest < QUIC_HEADER || ctx_load(ctx, at, b, QUIC_HEADER))
			return 0;
		if (!b[5] || b[5] > CID_MAX || rest < QUIC_HEADER + (__u32)b[5] || !quic_server_chose(b))
			return 0;
		place->at = at + QUIC_HEADER;
		place->length = b[5];
		return 1;
	}
	return 0;
}

/* The common record: the first one has the CID and lies in the linear part.
 * Returns where the CID starts, 0 if the walk must decide. */
static __always_inline __u32 cid_first(ctx_t *ctx, const struct pkt *p, __u32 protocols, __u32 length)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx);
	__u32 at = p->payload & 0x7ff, rest = p->end - p->payload;
	__u8 *b = data + at;

	if ((void *)(b + 16) > end)
		return 0;
	if (b[0] == 25 && protocols & CID_DTLS12) {
		__u8 *after = b + 11 + (length & 31);

		if (rest < DTLS_HEADER + length || b[1] != 0xfe || b[2] != 0xfd || (void *)(after + 2) > end)
			return 0;
		if (DTLS_HEADER + length + ((__u32)after[0] << 8 | after[1]) > rest)
			return 0;
		return p->payload + 11;
	}
	if (((b[0] & 0xf0) == 0x30 && protocols & CID_DTLS13) ||
	    ((b[0] & 0xc0) == 0x40 && protocols & CID_QUIC && !((b[0] & 0xe0) == 0x20)))
		return rest < 1 + length ? 0 : p->payload + 1;
	return 0;
}

static __always_inline __u32 cid_bits(const __u8 *id, __u32 offset, __u32 bits)
{
	__u32 first = offset >> 3, last = (offset + bits + 7) >> 3;
	__u64 word = 0;

#pragma unroll
	for (__u32 i = 0; i < 5; i++) {
		if (first + i < last)
			word = word << 8 | id[(first + i) & 31];
	}
	word >>= (last * 8 - offset - bits) & 7;
	return word & ((1ull << (bits & 63)) - 1);
}

/* The bits of a CID in the packet, read as one word. False: the word would
 * reach behind the linear part, or is too short. */
static __always_inline bool cid_word(ctx_t *ctx, __u32 at, __u32 offset, __u32 bits, __u32 *value)
{
	void *data = ctx_data(ctx), *end = ctx_end(ctx);
	__u64 *word = data + ((at + (offset >> 3)) & 0x7ff);
	__u32 shift = offset & 7;

	if ((void *)(word + 1) > end || !bits || bits > 32)
		return false;
	*value = bpf_be64_to_cpu(*word) << shift >> ((64 - bits) & 63);
	return true;
}

/* The owner id of the common datagram to a service with one layout. CID_NONE:
 * not that, cid_find must decide. */
static __always_inline enum cid_found cid_find_first(ctx_t *ctx, const struct pkt *p, const struct service *s, __u32 *owner)
{
	const struct cid_layout *l = &s->layout[0];
	__u32 at;

	if (s->layouts != 1 || l->rotation_bits)
		return CID_NONE;
	at = cid_first(ctx, p, s->cid_protocols, l->length);
	return at && cid_word(ctx, at, l->owner_offset, l->owner_bits, owner) ? CID_KNOWN : CID_NONE;
}

static __always_inline long cid_load(ctx_t *ctx, __u32 at, __u8 *id, __u32 n)
{
	barrier_var(n);
	return n < 1 || n > CID_MAX ? -1 : ctx_load(ctx, at, id, n);
}

/* Finds the owner id in the packet's payload. */
static __always_inline enum cid_found cid_find(ctx_t *ctx, const struct pkt *p, const struct service *s, __u32 *owner)
{
	enum cid_found found = CID_NONE;

	for (int i = 0; i < MAX_LAYOUTS; i++) {
		const struct cid_layout *l = &s->layout[i];
		struct cid_place place = {.at = p->payload, .length = l->length};
		__u8 id[32] = {};
		__u32 at;

		if (i >= s->layouts)
			break;
		at = cid_first(ctx, p, s->cid_protocols, l->length);
		if (at) {
			void *data = ctx_data(ctx), *end = ctx_end(ctx);
			__u8 *b = data + (at & 0x7ff);

			if ((void *)(b + CID_MAX) <= end)
				__builtin_memcpy(id, b, CID_MAX);
			else if (cid_load(ctx, at, id, l->length))
				continue;
		} else {
			if (!cid_locate(ctx, &place, p->end, s->cid_protocols))
				continue;
			if (place.length == l->length) {
				if (cid_load(ctx, place.at, id, l->length))
					continue;
			}
		}
		found = CID_FOUND;
		if (place.length != l->length)
			continue;
		if (l->rotation_bits && cid_bits(id, l->rotation_offset, l->rotation_bits) != l->rotation)
			continue;
		*owner = cid_bits(id, l->owner_offset, l->owner_bits);
		return CID_KNOWN;
	}
	return found;
}
