package snat

import v1 "github.com/weir-lb/weir/api/v1"

// The answers of this package are public types: what the commands print as JSON.
type (
	Plan     = v1.SNATPlan     // the answer to a Scenario
	StageUse = v1.SNATStage    // one stage of a plan
	Rule     = v1.SNATRule     // one line of the vendor table
	Size     = v1.SNATSize     // the least that meets a Need: nodes first, then ports of each, then public addresses
	Cell     = v1.SNATCell     // a scenario compared with what somebody measured
	Run      = v1.SNATRun      // the result of a simulation
	StageRun = v1.SNATStageRun // what a stage saw during a simulation
)
