package v1

import "time"

// SNATPlan is one element of the list that `weir snat plan --json` prints: what a path of translating stages holds. Counts are
// connections unless they say otherwise.
type SNATPlan struct {
	Name          string      `json:"name,omitempty"`         // of the scenario; absent: it has none
	Demand        int64       `json:"demand"`                 // replicas times connections
	Holds         int64       `json:"holds"`                  // the minimum cut, at most the demand
	Ceiling       int64       `json:"ceiling"`                // the minimum cut whatever the demand
	Fits          bool        `json:"fits"`                   // holds the demand, sustains the rate, and every node gets ports
	WholeReplicas int64       `json:"whole_replicas"`         // replicas that reach all of their connections
	Whole         int64       `json:"whole"`                  // what those hold
	PerNode       int64       `json:"per_node"`               // a client node's ceiling; 0: no stage bounds a node
	NodesPossible int64       `json:"nodes_possible"`         // nodes that get ports; 0: no stage bounds them
	NodesNeeded   int64       `json:"nodes_needed"`           // nodes for the demand; 0: nodes do not help
	NewPerSecond  float64     `json:"new_per_second"`         // sustainable, to all destinations; 0: no stage holds ports down
	RateStage     string      `json:"rate_stage,omitempty"`   // stage that bounds the rate; absent: none does
	First         string      `json:"breaks_first,omitempty"` // stage that breaks first; absent: none does
	Next          string      `json:"breaks_next,omitempty"`  // stage that breaks next; absent: none does
	Stages        []SNATStage `json:"stages"`                 // in the order that packets pass them
	Why           string      `json:"why"`                    // for people
	Remedy        string      `json:"remedy,omitempty"`       // for people; absent: it fits
	Warnings      []string    `json:"warnings"`               // for people
}

// SNATStage is one stage of a plan.
type SNATStage struct {
	Name      string  `json:"stage"`     // unique in the scenario
	Kind      string  `json:"kind"`      // files, ephemeral, masquerade, conntrack, azure-nat, ...
	Level     string  `json:"level"`     // replica, node, nat, server node or server
	Key       string  `json:"key"`       // header fields that it multiplexes over
	Keys      int64   `json:"keys"`      // how many of these there are
	PerKey    int64   `json:"per_key"`   // connections that one key holds
	Capacity  int64   `json:"capacity"`  // connections that all keys hold
	Used      float64 `json:"used"`      // share of its fullest key at what the path holds, 0 to 1
	Pressure  float64 `json:"pressure"`  // the same, were the whole demand to reach it; above 1 it breaks
	BreaksAt  int64   `json:"breaks_at"` // total demand that fills it; 0: never
	Transient bool    `json:"transient"` // it counts what arrives, not what is held
}

// SNATRule is one element of the list that `weir snat rules --json` prints: a number that the planner uses, and its source.
type SNATRule struct {
	Vendor string `json:"vendor"`        // such as Azure NAT gateway
	Rule   string `json:"rule"`          // what the number says
	Value  int64  `json:"value"`         // in Unit
	Unit   string `json:"unit"`          // of Value
	Basis  string `json:"basis"`         // documented, measured or assumed
	Date   string `json:"date"`          // when it was read or measured, YYYY-MM-DD
	Title  string `json:"title"`         // of the source
	URL    string `json:"url,omitempty"` // of the source; absent: it has none
}

// SNATSize is one way to translate, and the least that carries what is needed.
type SNATSize struct {
	Way          string   `json:"way"`                          // name
	Kind         string   `json:"kind"`                         // of the stage that translates
	Possible     bool     `json:"possible"`                     // some size carries it
	Nodes        int      `json:"nodes"`                        // needed
	Replicas     int      `json:"replicas"`                     // needed
	Ports        int      `json:"ports_per_node"`               // 0: no device allocates ports per node
	MaxPorts     int      `json:"max_ports_per_node,omitempty"` // of dynamic allocation; else absent
	IPs          int      `json:"ips"`                          // public addresses; of ephemeral, source addresses of a replica; 0: none
	Ceiling      int64    `json:"ceiling"`                      // connections that it holds
	NewPerSecond float64  `json:"new_per_second"`               // sustainable; 0: no stage holds ports down
	First        string   `json:"breaks_first"`                 // stage that breaks first; empty: none
	Why          string   `json:"why,omitempty"`                // why it is not possible; absent: it is
	Plan         SNATPlan `json:"plan"`                         // with this size
}

// SNATCell is one cell of a table of known figures, compared with the plan: an element of what `weir snat plan --cells --json` prints.
type SNATCell struct {
	Scenario  string    `json:"scenario"`            // name
	Table     string    `json:"table,omitempty"`     // that the figure is from; absent: none is named
	Expect    *int64    `json:"expect"`              // connections; null: an open cell
	Predicted int64     `json:"predicted"`           // connections: of a ceiling what whole replicas hold, else the exact figure
	Exact     int64     `json:"exact"`               // connections: the minimum cut
	Nodes     int64     `json:"nodes_possible"`      // nodes that get ports
	Status    string    `json:"status"`              // how plan and figure compare
	Reason    string    `json:"reason"`              // for people
	Plan      SNATPlan  `json:"plan"`                // of the scenario
	Seen      *SNATSeen `json:"simulated,omitempty"` // absent: the cell is not a transient one
}

// SNATSeen is what a simulation saw of a transient cell.
type SNATSeen struct {
	Lowest int64   `json:"lowest"`   // connections held
	Mean   float64 `json:"mean"`     // connections held
	Peak   int64   `json:"peak"`     // connections held
	Near   float64 `json:"near"`     // share of readings above zero that are within the tolerance of the expected figure, 0 to 1
	Lives  int64   `json:"restarts"` // client processes that ended
}

// SNATRun is the part `run` of what `weir snat simulate --json` prints: a simulation in virtual time. Counts are connections unless
// they say otherwise.
type SNATRun struct {
	Name          string         `json:"name,omitempty"`    // of the scenario; absent: it has none
	Seed          uint64         `json:"seed"`              // of the random generator
	Virtual       float64        `json:"virtual_s"`         // seconds simulated
	Events        int64          `json:"events"`            // of the simulator
	Attempts      int64          `json:"attempts"`          // connects, SYN retries not counted
	Opened        int64          `json:"opened"`            // attempts that succeeded
	Delayed       int64          `json:"delayed"`           // of these, only after a SYN retry
	TimedOut      int64          `json:"timed_out"`         // attempts with 127 s of silence; UDP: the first packet was lost
	Errors        int64          `json:"errors"`            // attempts refused at once by the client's own machine
	Closed        int64          `json:"closed"`            // ended, by whatever
	Evicted       int64          `json:"evicted"`           // policy original: closed by the server for silence
	Restarts      int64          `json:"restarts"`          // policy original: client processes that ended
	Peak          int64          `json:"peak"`              // maximum held at one time
	Lowest        int64          `json:"lowest"`            // minimum held in the last half
	Mean          float64        `json:"mean"`              // held in the last half
	Last          int64          `json:"last"`              // held at the end
	OpenPerSecond float64        `json:"opened_per_second"` // over the last half
	BrokeFirst    string         `json:"broke_first"`       // stage that first refused a connection; empty: none
	BrokeAt       *float64       `json:"broke_first_s"`     // when, in seconds of virtual time; null: never
	WaitedFor     []int64        `json:"opened_by_syn"`     // opened by the first SYN, the second, and so on
	Stages        []SNATStageRun `json:"stages"`            // in the order that packets pass them
	Series        SNATSeries     `json:"series"`            // over time
}

// SNATStageRun is one stage of a simulation.
type SNATStageRun struct {
	Name         string   `json:"stage"`           // unique in the scenario
	Kind         string   `json:"kind"`            // as SNATStage.Kind
	Capacity     int64    `json:"capacity"`        // connections, all keys
	Ports        int64    `json:"ports"`           // all keys; 0: it holds none down
	Peak         int64    `json:"peak"`            // maximum of connections at one time, all keys
	PeakHeld     int64    `json:"peak_held"`       // maximum of ports at one time that were in use or held down
	Fullest      int64    `json:"fullest_key"`     // maximum of connections at one time of one key
	PerKey       int64    `json:"per_key"`         // connections that one key holds; addresses that serve it count together
	Refused      int64    `json:"refused"`         // attempts that it had no room for
	FirstRefused *float64 `json:"first_refused_s"` // seconds of virtual time of the first of them; null: none
	Active       []int64  `json:"active"`          // connections, at the moments of SNATSeries.Second
	Busy         []int64  `json:"busy"`            // ports in use or held down, at the same moments
}

// SNATSeries is a simulation over time. All lists have the same length.
type SNATSeries struct {
	Second  []float64 `json:"second"`  // of virtual time
	Held    []int64   `json:"held"`    // connections
	Waiting []int64   `json:"waiting"` // connects without an answer yet
	Tried   []int64   `json:"tried"`   // connects so far
	Opened  []int64   `json:"opened"`  // connects that succeeded so far
	Failed  []int64   `json:"failed"`  // connects that timed out or were refused so far
}

// SNATSimulation is what `weir snat simulate --json` prints.
type SNATSimulation struct {
	Verdict string   `json:"verdict"`           // the run in one sentence, for people
	Took    float64  `json:"took_s"`            // seconds of real time
	PerSec  float64  `json:"events_per_second"` // events of the simulator in a second of real time
	Run     SNATRun  `json:"run"`               // what happened
	Plan    SNATPlan `json:"plan"`              // of the same scenario
	Report  string   `json:"report,omitempty"`  // page that was written; absent: none
}

// SNATSizes is what `weir snat plan --for N --json` prints.
type SNATSizes struct {
	Connections  int64      `json:"connections"`           // wanted at one time
	Rate         float64    `json:"new_per_second_wanted"` // 0: any
	Destinations int        `json:"destinations"`          // address and port pairs that are dialled
	Ways         []SNATSize `json:"ways"`                  // to translate them
}

// SNATLab is what `weir snat lab --json` prints: scenarios built from network namespaces, and the connections counted.
type SNATLab struct {
	At      time.Time     `json:"at"`      // start
	Took    float64       `json:"took_s"`  // seconds
	Cells   []SNATLabCell `json:"cells"`   // in the order of the scenarios
	Runs    int           `json:"runs"`    // of one NAT over one cell
	Differ  int           `json:"differ"`  // cells that do not agree
	Failed  int           `json:"failed"`  // runs that came to no count
	Verdict string        `json:"verdict"` // the whole in one sentence, for people
}

// SNATLabCell is one scenario: what was expected, planned and counted.
type SNATLabCell struct {
	Table    string       `json:"table,omitempty"` // that the expected figure is from; absent: none is named
	Scenario string       `json:"scenario"`        // name
	Expect   *int64       `json:"expect"`          // what somebody measured; null: an open cell
	Kind     string       `json:"kind"`            // how Expect is to be read: exact, ceiling or transient
	Plan     SNATPlan     `json:"plan"`            // of the scenario
	Kernel   SNATLabCount `json:"kernel"`          // through the kernel's NAT
	Weir     SNATLabCount `json:"weir"`            // through Weir's NAT
	Agree    bool         `json:"agree"`           // every count made is the plan's, on both ends
	Reason   string       `json:"reason"`          // for people
}

// SNATLabCount is what one NAT let through, or why there is no count.
type SNATLabCount struct {
	*SNATMeasured
	NotRun string   `json:"not_run,omitempty"` // why it was not measured; absent: it was
	Errors []string `json:"failed,omitempty"`  // why each attempt that broke did; with a count, a later one succeeded; absent: none broke
}

// SNATMeasured is a count of connections.
type SNATMeasured struct {
	Held      int               `json:"held"`                             // as the clients count
	Server    int               `json:"server"`                           // as the server counts
	Offered   int               `json:"offered"`                          // that the clients wanted
	Replicas  []int             `json:"replicas"`                         // what each replica holds
	Seconds   float64           `json:"filled_s"`                         // from the first connect to the last growth
	Failures  map[string]uint64 `json:"failures,omitempty"`               // of the clients, by kind; absent: none
	Ceiling   string            `json:"ceiling,omitempty"`                // what the tester calls it; absent: all fit
	CeilingAt int               `json:"ceiling_at,omitempty"`             // connections at which it stands; absent: not known
	Exhausted uint64            `json:"snat_exhausted_packets,omitempty"` // packets that found no free port; absent: none, or not Weir's NAT
	History   []SNATLabPoint    `json:"history"`                          // ascending
}

// SNATLabPoint is the count at one time.
type SNATLabPoint struct {
	Seconds float64 `json:"s"`    // since the first connect
	Held    int     `json:"held"` // connections
}
