/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * turn_ctx.h: what turn.h wants of a front end in addition to the ctx_ functions of its
 * hook.
 */
#pragma once

#include "parse.h"

struct relay_entry;
struct relay;

/* Gives the datagram its new length and headers. Returns 0, or a turn_end: one
 * that passes only before anything was written. */
static __always_inline int ctx_shift(ctx_t *ctx, struct pkt *p, const struct relay_entry *entry, const struct relay *r,
				     const struct out *out);
