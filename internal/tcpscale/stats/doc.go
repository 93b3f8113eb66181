// Package stats is the service that servers and clients of tcpscale report to: what each holds now, how it came there,
// and both ends side by side.
//
//	weir tcp server ─┐ POST /api/reports            ┌─ GET /            page (package web)
//	weir tcp client ─┼─► Service: a row and rings ──┼─ GET /api/state   JSON, now
//	old tcp-server  ─┘ POST /api/ServerStatistics   ├─ GET /api/history JSON, columns of the rings
//	                     one lock, one tick a second├─ GET /api/events  SSE, the state each second
//	                                                └─ GET /metrics     Prometheus text
//
// A reporter is known by role, id, host, process, run, worker and the address it reports from: two of one name stay two.
// It is silent when it has not reported for SilentAfter (those of the old program: a minute) and counts in no sum from
// then on; after ForgetAfter its row and rings go. Both happen by time, with or without reports of others.
//
// # Limits
//
// Everything is bounded: reporters (a new one takes the place of the longest silent or ended one; without such it is
// refused with 503), bytes, peers and names of a report, bytes being read, reports decoded at once, kinds of failures, watchers of the events (one that does
// not read for 8 s is cut off). Each refusal is counted in State.Dropped and in weir_tcp_stats_dropped_total. Rings hold
// 3600 points of 1 s and 8640 of 10 s (means), 300 kB for a reporter once a day has passed. Nothing is kept on disk. There are no
// accounts: who reaches the port, and knows Config.Token if there is one, can report and read. A report adds a row and shows
// nothing, and metrics name no address: Config.OpenReports lets both through without the token.
//
//	service := stats.New(stats.Config{Page: web.TCPStats()})
//	go service.Run(ctx)
//	http.Serve(listener, service.Handler())
package stats
