package load

import (
	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Report is what happened to the datagrams of a phase. It and its parts are public types.
type (
	Report     = v1.TurnLoadOf[measure.Latency]
	Flow       = v1.TurnLoadFlowOf[measure.Latency] // one direction
	Connection = v1.TurnLoadConnection              // one client's share
	Moments    = v1.TurnLoadMoments
)
