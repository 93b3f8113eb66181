// Package demo is weir demo: sessions that outlive changes of addresses and of nodes, live and as a report.
package demo
