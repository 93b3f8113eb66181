/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * front.h: the program in front of a queue (NFQUEUE) that decides by the same rules.
 * What has a backend here gets its mark; all else goes on without one, and the
 * queue's rule takes packets without a mark. To the queue go:
 *  - fragments before their first one, and with them the rest of the datagram:
 *    the queue holds them, so it must see the one they wait for;
 *  - ICMP errors that quote no flow known here;
 *  - SCTP, headers that parse.h does not follow, and what would be dropped: the
 *    queue drops it or knows a mark for it.
 * Dropped here is a flow beyond its service's rate of new ones, which would have
 * the queue's rate too, and a fragment whose first one went to a backend that is
 * gone: the queue would wait for that first one.
 */
#pragma once

#include "params.h"
#include "types.h"

static __always_inline int front(struct pkt *p, int reason)
{
	if (p->slot != NO_SLOT && reason >= REASON_FRAGMENT && reason < REASON_FRAGMENT_EARLY)
		return reason;
	if (reason == REASON_NEW_FLOW_RATE || reason == REASON_FRAGMENT_UNKNOWN)
		return reason;
	p->slot = NO_SLOT;
	return reason < REASON_FRAGMENT ? reason : REASON_NOT_STEERED;
}
