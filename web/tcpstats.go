package web

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed tcpstats
var tcpstats embed.FS

// TCPStats serves the page of `weir tcp stats` at / and its files. It reads api/events and api/history of the
// service that serves it (internal/tcpscale/stats), and nothing of another host.
func TCPStats() http.Handler {
	files, err := fs.Sub(tcpstats, "tcpstats")
	if err != nil {
		panic(err) // the name is in the line above
	}
	return page(files)
}
