// Package admin is the operator's HTTP door of a running part.
//
//	GET  /livez     200 while the process serves
//	GET  /readyz    200 when the part is ready, else 503 with the reason
//	GET  /metrics   Prometheus text, from a snapshot function
//	GET  /status    JSON, no secrets
//	GET  /flows     JSON: ?service=NAME &backend=NAME &protocol=P &client=PREFIX &state=S &sort=KEY &limit=N (at most MaxFlows)
//	POST /drain /undrain /down /up     ?service=NAME [&backend=NAME]: overrides
//	…               what else the part serves: Config.Routes
//	POST /console   lines in the body, answers in the reply; with `Upgrade: weir-console`, a stream both ways
//	…               Config.Routes: what a part serves besides
//	GET  /          the dashboard, when there is one
//
// Addresses: HOST:PORT or unix:/path. On a loopback address or a Unix socket (mode 0600) all of it is served; loopback
// requests must name localhost or an address as Host, so that a web page cannot reach it by rebinding a name, and
// changes from other origins are refused. On any other address only /livez, /readyz and /metrics are served, unless a
// token is set: then the rest wants `Authorization: Bearer TOKEN`.
//
// Slow or greedy clients are bounded: maxConnections at one time, time-outs on reading and writing, small headers and
// bodies. The package knows nothing of load balancing: what it shows and does are function values of its Config.
//
//	server, err := admin.Open(admin.Config{Address: "127.0.0.1:9180", Status: func() any { return loop.Status() }})
//	err = server.Run(ctx)
package admin
