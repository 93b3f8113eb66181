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
struct cid_position {
	__u32 at;
	__u32 length;
};

/* The fixed bit may be clear (RFC 9287), but not where DTLS has the same port (RFC 9443). */
static __always_inline bool is_quic(__u8 first, __u32 protocols)
{
	return protocols & CID_QUIC && (first >= 0x40 || !(protocols & (CID_DTLS12 | CID_DTLS13)));
}

/* Who chose the CID of a long header. Of versions unknown here that is not known;
 * the offset of the CID is the same in all (RFC 8999). */
enum cid_chosen { CID_BY_CLIENT, CID_BY_SERVER, CID_BY_EITHER };

static __always_inline enum cid_chosen quic_chosen(const __u8 *b)
{
	__u32 version = (__u32)b[1] << 24 | (__u32)b[2] << 16 | (__u32)b[3] << 8 | b[4];
	__u8 type = b[0] >> 4 & 3;

	if (!version)
		return CID_BY_CLIENT; /* version negotiation */
	if (version == 1)
		return type >= 2 ? CID_BY_SERVER : CID_BY_CLIENT;
	if (version == 0x6b3343cf)
		return type == 3 || type == 0 ? CID_BY_SERVER : CID_BY_CLIENT;
	return CID_BY_EITHER;
}

/* Walks DTLS records from found->at to the first with a CID. The length wanted
 * is in found->length. Returns enum cid_chosen; CID_BY_CLIENT: there is none. */
__noinline int cid_locate(ctx_t *ctx, struct cid_position *found, __u32 end, __u32 protocols)
{
	__u8 b[16];
	__u32 at, length, start, rest;

	if (!found)
		return 0;
	start = at = found->at;
	length = found->length;
	for (int i = 0; i < MAX_RECORDS; i++) {
		__u8 first;

		rest = end - at;
		if (at >= end || ctx_load(ctx, at, b, 1))
			return 0;
		first = b[0];
		if (at == start && is_quic(first, protocols))
			goto quic;
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
			found->at = at + 11;
			return CID_BY_SERVER;
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
			found->at = at + 1;
			return CID_BY_SERVER;
		}
		return 0;
	}
	return 0;
quic:
	rest = end - start;
	if (!(b[0] & 0x80)) {
		if (!length || rest < 1 + length)
			return 0;
		found->at = start + 1;
		return CID_BY_SERVER;
	}
	if (rest < QUIC_HEADER || ctx_load(ctx, start, b, QUIC_HEADER))
		return 0;
	if (!b[5] || b[5] > CID_MAX || rest < QUIC_HEADER + (__u32)b[5])
		return 0;
	found->at = start + QUIC_HEADER;
	found->length = b[5];
	return quic_chosen(b);
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
	if (((b[0] & 0xf0) == 0x30 && protocols & CID_DTLS13) || (!(b[0] & 0x80) && is_quic(b[0], protocols)))
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

	if (s->layouts != 1 || s->rotation_bits)
		return CID_NONE;
	at = cid_first(ctx, p, s->cid_protocols, l->length);
	return at && cid_word(ctx, at, l->owner_offset, l->owner_bits, owner) ? CID_KNOWN : CID_NONE;
}

static __always_inline long cid_load(ctx_t *ctx, __u32 at, __u8 *id, __u32 n)
{
	barrier_var(n);
	return n < 1 || n > CID_MAX ? -1 : ctx_load(ctx, at, id, n);
}

/* Finds the owner id in the packet's payload, and the layout that says whose it is. */
static __always_inline enum cid_found cid_find(ctx_t *ctx, const struct pkt *p, const struct service *s, __u32 *layout,
					       __u32 *owner)
{
	enum cid_found found = CID_NONE;

	for (int i = 0; i < MAX_LAYOUTS; i++) {
		const struct cid_layout *l = &s->layout[i];
		struct cid_position position = {.at = p->payload, .length = l->length};
		__u32 at, chosen = CID_BY_SERVER;
		__u8 id[32] = {};

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
			chosen = cid_locate(ctx, &position, p->end, s->cid_protocols);
			if (chosen == CID_BY_CLIENT)
				continue;
			if (position.length == l->length) {
				if (cid_load(ctx, position.at, id, l->length))
					continue;
			}
		}
		if (chosen == CID_BY_SERVER)
			found = CID_FOUND;
		if (position.length != l->length)
			continue;
		if (s->rotation_bits && cid_bits(id, s->rotation_offset, s->rotation_bits) != l->rotation)
			continue;
		*layout = i;
		*owner = cid_bits(id, l->owner_offset, l->owner_bits);
		return CID_KNOWN;
	}
	return found;
}
