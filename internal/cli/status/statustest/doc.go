// Package statustest checks the metrics that a part of Weir serves against the page of metrics and against Prometheus's own tool.
package statustest
