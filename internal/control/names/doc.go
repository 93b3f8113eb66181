// Package names follows DNS names: it looks them up again and again, and keeps the addresses of the last valid answer.
//
//	Prepare, Commit ── names ──► Set ── look-ups, 16 at a time ──► resolver
//	                              └──► Addresses, Status; Run calls changed
//
// A name whose look-up fails keeps its addresses. Only if a server answers three times in a row that there is no such name, they are
// dropped, because by then the addresses may belong to another host. The order of addresses in answers does not matter. DNS
// does not say how long to wait: the system's resolver hides TTLs, so each name has an interval of its own.
//
//	set := names.New(names.Options{MaxAddresses: 16})
//	set.Commit(wanted, set.Prepare(ctx, wanted))
//	set.Run(ctx, func() bool { return apply(set.Addresses()) })
//
// Limits: MaxAddresses per name; further addresses are dropped and counted. The number of names is the caller's bound.
package names
