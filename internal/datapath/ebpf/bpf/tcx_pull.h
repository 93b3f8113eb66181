/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * tcx_pull.h: headers where programs can read them.
 */
#pragma once

#include "parse.h"

enum { PULL = 256 };

/* Makes the headers linear. */
static __always_inline bool ctx_pull(ctx_t *ctx, const struct pkt *p)
{
	__u32 n = p->len < PULL ? p->len : PULL;

	if (p->l4 && p->l4 + 64u > n)
		n = p->l4 + 64u < p->len ? p->l4 + 64u : p->len;
	return !bpf_skb_pull_data(ctx, n);
}
