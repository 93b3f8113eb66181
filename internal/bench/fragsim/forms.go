package fragsim

import v1 "github.com/weir-lb/weir/api/v1"

// What the simulation answers are public types.
type (
	Result = v1.FragmentRun    // one run
	Advice = v1.FragmentAdvice // a table size for a rate and a lifetime
)
