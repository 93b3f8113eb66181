// Package measuring is what the commands that measure share: progress, results as a table or as JSON, reports in HTML, and the
// worker processes of weir tcp.
package measuring
