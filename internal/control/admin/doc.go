// Package admin answers operators, probes and Prometheus over HTTP, on an address of a running part.
//
//	GET  /livez     200 while the process serves                                        no credential
//	GET  /readyz    200 when the part is ready, else 503 with the reason                no credential
//	GET  /metrics   Prometheus text, from a snapshot function                           no credential
//	GET  /status    JSON, no secrets
//	GET  /flows     JSON: ?service=NAME &backend=NAME &protocol=P &client=PREFIX &state=S &sort=KEY &limit=N (at most MaxFlows)
//	GET  /events    JSON: the newest log records, ?after=NUMBER
//	GET  /history   JSON: the last hour of Config.Plots, a point every ten seconds
//	POST /drain /undrain /down /up     ?service=NAME [&backend=NAME]: overrides
//	POST /trace     a stream of lines
//	POST /console   lines in the body, answers in the reply; with `Upgrade: weir-console`, a stream both ways
//	…               Config.Routes: what a part serves besides
//	GET  /routes    JSON: all of these, and which need no credential
//	GET  /openapi.json   all of these as OpenAPI
//	GET  /          the dashboard, when there is one
//
// Addresses: HOST:PORT or unix:/path. The credential is the Unix socket itself, which has mode 0600 from its first instant, or over
// TCP, loopback included, Config.Token: `Authorization: Bearer TOKEN`, or the password that a browser requests. Without a token, TCP
// has probes and metrics only. Every request has to name this machine as Host, so that a web page cannot reach it by rebinding a
// name, and changes from other origins are refused. Every answer names its part (PartHeader), so that a [Client] that was pointed at
// another one says so.
//
// Bounds. Connections: maxConnections; one whose request is being answered is never closed; a waiting one is closed for a new one: the oldest
// of the source that holds most (steering/evict); counters weir_admin_connections_evicted_total and …_refused_total. So connections
// that idle never keep a probe out. Requests with a credential: maxOperators at a time, 503 beyond, and maxFollowers for each path whose
// answers go on, so that operators keep no probe out, and clients that follow something keep out neither requests nor those of another
// path. Time-outs on reading and writing, small headers and bodies.
//
// The package knows nothing of load balancing: what it shows and does are function values of its Config.
//
//	server, err := admin.Open(admin.Config{Address: "unix:/run/weir/lb.sock", Part: "lb", Status: func() any { return loop.Status() }})
//	err = server.Run(ctx)
package admin
