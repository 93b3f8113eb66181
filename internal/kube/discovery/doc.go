// Package discovery carries configurations from an operator to its data planes, by the protocol of STUNner's config discovery service
// (CDS): HTTP for one reading, WebSocket (RFC 6455) for a watch.
//
//	operator ── Set, Delete, Replace ──► Server ═══ HTTP, WebSocket ═══► Watcher ── received(config) ──► data plane
//
//	GET /api/v1/configs                            {"version":"v1","items":[CONFIG, …]}
//	GET /api/v1/configs/NAMESPACE                  the same, of one namespace
//	GET /api/v1/configs/NAMESPACE/NAME             CONFIG, or 404 {"code","message"}
//	GET /api/v1/configs/NAMESPACE/NAME?node=NODE   CONFIG as it is for that node
//	GET /api/v1/license                            the license status of STUNner
//	…?watch=true                                   WebSocket: a text message with one CONFIG, now and whenever it changes
//
// A CONFIG is JSON; the package does not look into it. What a configuration is named is in it, or known to the client that asked for
// one by name: the protocol sends no name. When a configuration is deleted, watchers receive what ServerOptions.Deleted makes of its name.
//
// The client pings every 5 s and closes a connection that was silent for 8 s, as STUNner's; it connects again after 1 s, doubled up to
// 30 s while that fails. The server pings every 20 s and closes a connection that was silent for a minute.
//
// A server sends a watcher only the newest of each configuration: a slow watcher skips what was replaced meanwhile, and costs the
// server no memory. The protocol has no credentials and no encryption, and configurations contain secrets: let only the Pods of
// data planes connect (a NetworkPolicy), or refuse requests with ServerOptions.Authorize.
//
// Limits: MaxConfig bytes for each configuration, MaxConfigs configurations, MaxWatchers connections, of which one client address has
// at most MaxWatchersPerAddress.
//
//	w := discovery.Watcher{Origin: origin, ID: discovery.ID{Namespace: "media", Name: "gateway"}}
//	err := w.Run(ctx, func(config []byte) { … })
package discovery
