package tcpscale

import (
	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Roles of a [Report].
const (
	RoleServer = "server"
	RoleClient = "client"
)

// Report is what a server or client has done so far: of one worker, or merged of all workers of a process ([MergeReports]). Its
// parts are public types too.
type (
	Report       = v1.TCPReportOf[measure.Latency]
	Connections  = v1.TCPConnections // of this moment
	Totals       = v1.TCPTotals      // since the start
	Rates        = v1.TCPRates       // per second
	Heartbeats   = v1.TCPHeartbeatsOf[measure.Latency]
	Bytes        = v1.TCPBytes
	Peer         = v1.TCPPeer
	FailedTuple  = v1.TCPFailure // one failure, to look for in captures and tables
	Plateau      = v1.TCPPlateau // a ramp that stands still below its target
	Replicas     = v1.TCPReplicas
	Reconciled   = v1.TCPReconciled
	Interval     = v1.TCPInterval
	HistoryPoint = v1.TCPHistoryPoint
	// Mark is what became of a client's connections since a moment that its parent named with an OpMark, until the next one. Times
	// count from that moment, as each worker received the message.
	Mark = v1.TCPMarkOf[measure.Latency]
)

func newInterval(l *measure.Latency) *Interval {
	return &Interval{Count: l.Count(), P50: measure.Millis(l.Quantile(.5)), P99: measure.Millis(l.Quantile(.99)), Max: measure.Millis(l.Max())}
}
