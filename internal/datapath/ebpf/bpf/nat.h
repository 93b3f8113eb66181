/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * nat.h: new endpoints for a packet, in place; checksums by difference, so
 * that what was wrong stays wrong and what was right stays right. UDP's zero
 * (none) stays zero (RFC 768).
 */
#pragma once

#include "frag.h"
#include "rewrite.h"

__noinline int nat_plain(ctx_t *ctx, struct pkt *p) { return p ? nat_plain_here(ctx, p) : 0; }
