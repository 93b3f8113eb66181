package web

import "net/http"

// TCPStats serves the page of `weir tcp stats` at / and its files. It reads api/events and api/history of the
// service that serves it (internal/tcpscale/stats), and nothing of another host.
func TCPStats() http.Handler { return page("tcpstats.html") }
