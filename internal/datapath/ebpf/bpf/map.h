/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * map.h: how a program declares a map.
 */
#pragma once

#include "types.h"

#define MAP(kind, name, k, v, entries, flags)              \
	struct {                                           \
		__uint(type, BPF_MAP_TYPE_##kind);         \
		__uint(max_entries, entries);              \
		__uint(map_flags, flags);                  \
		__type(key, k);                            \
		__type(value, v);                          \
	} name SEC(".maps")
