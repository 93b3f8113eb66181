package v1

// Demo is what `weir demo --json` prints: sessions over half a minute of disturbances, with and without connection ids.
type Demo struct {
	OK              bool        `json:"ok"`                 // what was promised was kept
	Verdict         string      `json:"verdict"`            // the run in one sentence, for people
	Requests        uint64      `json:"requests"`           // answered
	Established     uint64      `json:"established"`        // sessions made
	Lost            uint64      `json:"lost"`               // sessions given up by their client
	Rehandshakes    uint64      `json:"rehandshakes"`       // handshakes after a client's first
	Errors          uint64      `json:"errors"`             // requests failed or unanswered
	Retransmissions uint64      `json:"retransmissions"`    // of requests
	Rate            float64     `json:"requests_per_s"`     // answered
	P50             float64     `json:"p50_ms"`             // half of the requests took no longer, in milliseconds
	P99             float64     `json:"p99_ms"`             // 99 % of them, in milliseconds
	Max             float64     `json:"max_ms"`             // the longest, in milliseconds
	Forwarded       uint64      `json:"forwarded"`          // records that reached their owner through another node
	Plain           DemoPlain   `json:"without_cid"`        // clients without connection ids
	Sessions        []int       `json:"sessions"`           // that each node holds at the end, those that clients without connection ids have given up included
	Drained         int         `json:"drained"`            // number of the node that got no new clients at the end
	Clients         int         `json:"clients"`            // with connection ids
	Nodes           int         `json:"nodes"`              // behind the balancer
	Seconds         float64     `json:"seconds"`            // of the run
	Seed            uint64      `json:"seed"`               // of the disturbances
	Command         string      `json:"command"`            // as typed
	LoadBefore      string      `json:"load_before"`        // load average of the machine before, of 1, 5 and 15 minutes; empty: not known
	LoadAfter       string      `json:"load_after"`         // the same after it
	Events          []DemoEvent `json:"events"`             // disturbances, ascending
	Report          string      `json:"report,omitempty"`   // page that was written; absent: none
	Failures        []string    `json:"failures,omitempty"` // why OK is false; absent: it is true
}

// DemoEvent is one disturbance of a run, as it happened.
type DemoEvent struct {
	At    float64 `json:"at_s"`            // seconds since the first request
	Kind  string  `json:"kind"`            // of disturbance
	Label string  `json:"label"`           // what was done, for people
	Error string  `json:"error,omitempty"` // why it could not be done, so that the run proves nothing; absent: it was done
	// Lost is sessions lost until the next event; in a run of less than 20 s also some that the event before had cost.
	Lost      uint64 `json:"lost"`
	LostPlain uint64 `json:"lost_without_cid"` // likewise, of clients without connection ids
}

// DemoPlain is what the same events did to the clients without connection ids.
type DemoPlain struct {
	Clients      int    `json:"clients"`      // their number
	Established  uint64 `json:"established"`  // sessions that they made in all
	Lost         uint64 `json:"lost"`         // of those, given up because no program answered any more
	Rehandshakes uint64 `json:"rehandshakes"` // handshakes after a client's first
	Requests     uint64 `json:"requests"`     // answered
}

// FragmentSimulation is what `weir sim fragments --json` prints: a table of fragments in virtual time.
type FragmentSimulation struct {
	Table    string         `json:"table"`            // weir or nfqlb
	Rate     int            `json:"rate"`             // datagrams per second
	Duration float64        `json:"duration_s"`       // seconds of virtual time
	Seed     uint64         `json:"seed"`             // of the random generator
	Verdict  string         `json:"verdict"`          // the simulation in one sentence, for people
	Mean     FragmentRun    `json:"mean"`             // of all runs
	Runs     []FragmentRun  `json:"runs"`             // each with random numbers of its own
	Advice   FragmentAdvice `json:"advice"`           // which size loses nothing
	Report   string         `json:"report,omitempty"` // page that was written; absent: none
}

// FragmentRun is one run, in the words of nfqlb's simulator. In Weir's table nothing collides; its buckets are the entries beyond size.
type FragmentRun struct {
	TTLMillis    int64   `json:"ttl_millis"`    // lifetime of an entry
	Size         int     `json:"size"`          // main buckets
	Active       int     `json:"active"`        // entries alive at the end
	Collisions   uint64  `json:"collisions"`    // insertions into a chain that was not empty
	Inserts      uint64  `json:"inserts"`       // datagrams offered
	Rejected     uint64  `json:"rejected"`      // datagrams refused, or evicted in the first half of their lifetime
	Lookups      uint64  `json:"lookups"`       // none: the traffic is first fragments
	ObjGC        uint64  `json:"obj_gc"`        // entries reclaimed, at the end too
	BucketsMax   int     `json:"buckets_max"`   // extra buckets
	BucketsPeak  int     `json:"buckets_peak"`  // maximum of them in use at one time
	BucketsStale uint64  `json:"buckets_stale"` // entries stale and not reclaimed when the traffic ended
	PercentLoss  float64 `json:"percent_loss"`  // of rejected in inserts
	EntriesPeak  int     `json:"entries_peak"`  // maximum of entries held at one time, stale ones included
	Early        uint64  `json:"early"`         // entries given up in the second half of their lifetime, to make room; Weir's table only
}

// FragmentAdvice is a table size for a rate and a lifetime, tried in simulation.
type FragmentAdvice struct {
	Live        float64 `json:"live"`         // datagrams that are alive on average: rate times lifetime
	WeirEntries int     `json:"weir_entries"` // limits.fragments for Weir's table: what is alive, and six standard deviations of independent arrivals
	NFQLBSize   int     `json:"nfqlb_size"`   // the smallest prime that, as ft_size and as ft_buckets, loses nothing; 0: none was found up to NFQLBTried
	NFQLBTried  int     `json:"nfqlb_tried"`  // the largest size that was tried
}
