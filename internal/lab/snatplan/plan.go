package snatplan

// Plan is the answer to a Scenario. Counts are connections.
type Plan struct {
	Name          string     `json:"name,omitempty"`
	Demand        int64      `json:"demand"`         // replicas × connections
	Holds         int64      `json:"holds"`          // the minimum cut, at most the demand
	Fits          bool       `json:"fits"`           // holds the demand, sustains the rate, and every node gets ports
	WholeReplicas int64      `json:"whole_replicas"` // that reach all of their connections
	Whole         int64      `json:"whole"`          // what those hold
	PerNode       int64      `json:"per_node"`       // a client node's ceiling; 0: no stage bounds a node
	NodesPossible int64      `json:"nodes_possible"` // that get ports; 0: no stage bounds them
	NodesNeeded   int64      `json:"nodes_needed"`   // for the demand; 0: nodes do not help
	NewPerSecond  float64    `json:"new_per_second"` // sustainable, to all destinations; 0: no stage holds ports down
	RateStage     string     `json:"rate_stage,omitempty"`
	First         string     `json:"breaks_first,omitempty"`
	Next          string     `json:"breaks_next,omitempty"`
	Stages        []StageUse `json:"stages"`
	Why           string     `json:"why"`
	Remedy        string     `json:"remedy,omitempty"`
	Warnings      []string   `json:"warnings"`
}

// StageUse is one stage of a plan.
type StageUse struct {
	Name      string  `json:"stage"`
	Kind      Kind    `json:"kind"`
	Level     string  `json:"level"` // replica, node, nat, server node, server
	Key       string  `json:"key"`   // header fields it multiplexes over
	Keys      int64   `json:"keys"`
	PerKey    int64   `json:"per_key"`
	Capacity  int64   `json:"capacity"`  // all keys
	Used      float64 `json:"used"`      // share of its fullest key at what the path holds
	Pressure  float64 `json:"pressure"`  // the same, were the whole demand to reach it; above 1 it breaks
	BreaksAt  int64   `json:"breaks_at"` // total demand that fills it; 0: never
	Transient bool    `json:"transient"` // counts what arrives, not what is held
}
