// Package discovery carries the configuration of load balancers from a controller, such as the operator, to the data planes of each node,
// and what became of it back.
//
//	controller ── Set, SetNode ──► Server ═══ HTTP, a stream of JSON lines ═══► Watcher ── apply ──► control.Loop
//	           ◄── Nodes, Wait ──         ◄══ POST: applied, or refused and why ══         ──► file: the last valid one
//
//	GET  /weir/lb/v1/config?node=NODE&applied=VERSION   {"version":"…","config":"…"} now, unless the node has it, and at every change
//	                                                    {} every 10 s
//	POST /weir/lb/v1/applied?node=NODE                  {"version":"…","generation":7}, or {"version":"…","error":"…"}
//
// A version is a fingerprint of the text ([Version]), so it means the same for each replica of the controller and after its restart. A
// watcher gets the newest configuration only: what was replaced meanwhile is skipped, and costs the server no memory.
//
// The Watcher applies a configuration, writes it to a file and only then reports it as applied. One that is refused is reported with the
// reason; the one before stays in force, and in the file. With the file, a restart while the server is away serves the last valid
// configuration. It connects again after 1 s, doubled up to 30 s while that fails; a connection on which nothing arrives for 30 s
// is closed.
//
// Credentials: a bearer token from a file, which is read for each request, over HTTPS, a Unix socket or to this machine only. The server
// refuses requests without its token.
//
// Limits: [MaxConfig] bytes for a configuration, [MaxNodes] nodes, MaxReason bytes of a reason, one stream for each node: a new one
// ends the one before.
//
//	server := discovery.NewServer(discovery.ServerOptions{Token: token})
//	version, err := server.Set([]byte("services: []\n"))
//	err = server.Wait(ctx, version, "node-a")
package discovery
