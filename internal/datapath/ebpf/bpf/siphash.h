/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * siphash.h: SipHash-2-4 (Aumasson, Bernstein 2012) over the 40 bytes of a
 * flow key, as flow.HashKey computes it. Only new flows need it: every load
 * balancer of a tier must agree on their backend.
 */
#pragma once

#include "types.h"

#define SIP_ROTATE(x, n) ((x) << (n) | (x) >> (64 - (n)))
#define SIP_ROUND                                                   \
	do {                                                        \
		a += b, b = SIP_ROTATE(b, 13) ^ a, a = SIP_ROTATE(a, 32); \
		c += d, d = SIP_ROTATE(d, 16) ^ c;                  \
		a += d, d = SIP_ROTATE(d, 21) ^ a;                  \
		c += b, b = SIP_ROTATE(b, 17) ^ c, c = SIP_ROTATE(c, 32); \
	} while (0)
#define SIP_WORD(m)                  \
	do {                         \
		d ^= (m);            \
		SIP_ROUND;           \
		SIP_ROUND;           \
		a ^= (m);            \
	} while (0)

static __always_inline __u64 siphash40(const __u64 sip[2], const __u64 w[5])
{
	__u64 k0 = sip[0], k1 = sip[1];
	__u64 a = k0 ^ 0x736f6d6570736575ull, b = k1 ^ 0x646f72616e646f6dull;
	__u64 c = k0 ^ 0x6c7967656e657261ull, d = k1 ^ 0x7465646279746573ull;

	SIP_WORD(w[0]);
	SIP_WORD(w[1]);
	SIP_WORD(w[2]);
	SIP_WORD(w[3]);
	SIP_WORD(w[4]);
	SIP_WORD(40ull << 56);
	c ^= 0xff;
	SIP_ROUND;
	SIP_ROUND;
	SIP_ROUND;
	SIP_ROUND;
	return a ^ b ^ c ^ d;
}
