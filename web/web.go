// Package web holds the dashboards: pages, their scripts and one style sheet, embedded in the binary.
//
// Every running part serves index.html at its admin address. The page asks which part it is (the header Weir-Part) and what it serves
// (/routes), and shows what there is, every two seconds: the status in tables, rates from /metrics, the last hour from /history, the log
// records from /events, and the reasons of drops with their remedies. `weir tcp stats` serves tcpstats.html.
//
//	dom.js      elements, and how values are written        app.js      the page: polls, cards, findings, sections
//	table.js    tables that are kept up to date in place    announce.js balancer.js coap.js small.js turn.js   what one part shows
//	plot.js     line plots                                  drops.js    losses of all parts; reasons.js is generated from docs
//	metrics.js  /metrics, and rates of counters             events.js history.js explorer.js   log records, last hour, all metrics
//
// Nothing is fetched from another host, and the policy of the page refuses scripts that are not files of this package.
package web

import (
	"embed"
	"net/http"
)

//go:embed *.html *.js *.css
var files embed.FS

// Handler serves the page of a part at / and its files.
func Handler() http.Handler { return page("index.html") }

// page serves one of the pages at /, and the files that a browser may take from here alone.
func page(name string) http.Handler {
	server := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		w.Header().Set("Cache-Control", "no-cache")
		if r.URL.Path == "/" {
			http.ServeFileFS(w, r, files, name)
			return
		}
		server.ServeHTTP(w, r)
	})
}
