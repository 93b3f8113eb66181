// Package web holds the dashboard: one page and its script, embedded in the binary and
// served by the admin API of every running part.
//
// The page knows nothing of parts. It reads /metrics each two seconds and draws what it
// finds: counters as rates, gauges as values, each with its last minutes. So a new
// counter shows up by itself, and what an operator sees is what Prometheus would get.
// A part that serves /users (the TURN gateway) gets a table of them on top. Nothing is
// fetched from another host.
package web

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed index.html app.js users.js style.css
var files embed.FS

// Handler serves the page at / and its files.
func Handler() http.Handler { return page(files) }

// page serves files that a browser may take from here alone.
func page(files fs.FS) http.Handler {
	server := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		w.Header().Set("Cache-Control", "no-cache")
		server.ServeHTTP(w, r)
	})
}
