// Package controller runs package turn in an operator: it gives Translate the world, remembers the last configurations, and serves them to the
// data planes by STUNner's config discovery service.
//
//	operator ── World ──► turn.Translate ─┬─► objects, statuses, events ──► operator, which writes them
//	                                      └─► configurations ──► discovery.Server ══ WebSocket ══► stunnerd, weir turn stunnerd
//
// Configurations contain credentials and keys. They are in memory only; the discovery service gives them away, and if there is one the
// authentication service credentials of them: see their packages for whom to let reach them. Each of several operators serves them, from its own caches, once it has configurations;
// the leader alone writes objects and statuses.
package controller
