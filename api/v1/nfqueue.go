package v1

// NFQueueStatus is the state of the NFQUEUE data path.
type NFQueueStatus struct {
	Generation    uint64                     `json:"generation"`     // number of the snapshot in force
	Length        int                        `json:"queue_length"`   // packets that may wait in each queue
	CopyRange     int                        `json:"copy_range"`     // bytes of each packet that Weir looks at
	Batch         int                        `json:"batch"`          // packets that one system call reads or answers
	ReceiveBuffer int                        `json:"receive_buffer"` // bytes in force, of each queue's socket
	FailOpen      bool                       `json:"fail_open"`      // packets that find a queue full go on without a mark
	Queues        []NFQueue                  `json:"queues"`         // in the order of their numbers
	Reasons       map[string]uint64          `json:"reasons"`        // packets of all services and of none, by reason
	Services      map[string]*NFQueueService `json:"services"`       // by name
	FlowTable     FlowTableStatus            `json:"flow_table"`     // the flow tables of all queues
	Fragments     FragmentStatus             `json:"fragments"`      // the fragment tables of all queues
	Tier          TierCounters               `json:"tier"`           // fragments for other balancers
	Kept          *KeptFlows                 `json:"kept"`           // flows that outlive the process
}

// KeptFlows says which flows outlive a process, also after kill -9, and which of the last process were taken over.
type KeptFlows struct {
	File          string  `json:"file,omitempty"`           // where they are kept; absent: nowhere
	Why           string  `json:"why,omitempty"`            // why they are not kept, or why those of the last process were not taken over; absent: they are
	TookOver      int     `json:"took_over"`                // flows of the last process that this one has taken over at its start
	Expired       int     `json:"expired,omitempty"`        // of its flows, those whose time was over; absent: none
	NotConfigured int     `json:"not_configured,omitempty"` // those whose service or backend was not configured any more; absent: none
	NoRoom        int     `json:"no_room,omitempty"`        // those for which the table is too small now; absent: none
	Damaged       int     `json:"damaged,omitempty"`        // records that could not be used; absent: none
	Seconds       float64 `json:"seconds,omitempty"`        // that taking over took; absent: there was nothing
	Unkept        uint64  `json:"unkept,omitempty"`         // changes of flows that were not written, because there was no memory; absent: none
}

// NFQueue is one queue and its worker.
type NFQueue struct {
	Number uint16 `json:"queue"` // of the queue
	NFQueueWorker
	NFQueueKernel
	Held           int    `json:"held"`             // early fragments whose verdict waits now
	HeldReleased   uint64 `json:"held_released"`    // early fragments that went on when the first one came
	HeldExpired    uint64 `json:"held_expired"`     // early fragments dropped because the first one never came
	HeldAbandoned  uint64 `json:"held_abandoned"`   // early fragments dropped with the rest of their datagram, or at shutdown
	HeldEvicted    uint64 `json:"held_evicted"`     // early fragments dropped to make room for others
	RefusedAnswers uint64 `json:"refused_verdicts"` // verdicts that the kernel refused because the packet was gone
	OddMessages    uint64 `json:"odd_messages"`     // messages of the kernel that are no packet
	CutMessages    uint64 `json:"cut_messages"`     // messages longer than the receive buffer
	Sleeps         uint64 `json:"sleeps"`           // times that the worker waited for a packet
	AddressPairs   int    `json:"address_pairs"`    // estimate of those seen in the last seconds; queues are balanced by pair
	Flows          int    `json:"flows"`            // entries of the flow table
	MaxFlows       int    `json:"max_flows"`        // bound on those
}

// NFQueueWorker are running totals of one worker.
type NFQueueWorker struct {
	Packets    uint64 `json:"packets"`     // decided
	Bytes      uint64 `json:"bytes"`       // of these, from the IP header on
	Large      uint64 `json:"large"`       // of these, large segments (GSO)
	Marked     uint64 `json:"marked"`      // of these, with a fwmark when they came
	Batches    uint64 `json:"batches"`     // reads that brought packets
	MissingIDs uint64 `json:"missing_ids"` // gaps in the packets' numbers: lost between queue and Weir
	Short      uint64 `json:"short"`       // packets with headers beyond the copy range, dropped as malformed
	Queries    uint64 `json:"asked"`       // ICMP errors about flows that another queue may know
}

// NFQueueKernel is the kernel's row about one queue. All are 0 where /proc/net/netfilter/nfnetlink_queue cannot be read.
type NFQueueKernel struct {
	PortID     uint32 `json:"port_id"`       // of the netlink socket that has the queue
	Waiting    uint32 `json:"waiting"`       // packets without a verdict
	CopyRange  uint32 `json:"copy_range"`    // bytes
	QueueDrops uint32 `json:"queue_dropped"` // packets dropped because the queue was full
	UserDrops  uint32 `json:"user_dropped"`  // packets dropped because the socket's buffer was full
	LastID     uint32 `json:"last_id"`       // number of the last packet
}

// NFQueueService is what one service carried.
type NFQueueService struct {
	Reasons  map[string]uint64         `json:"reasons"`              // packets by reason; those that happened
	Backends map[string]NFQueueBackend `json:"backends"`             // by name
	Rules    []NFQueueRule             `json:"flow_rules,omitempty"` // the one that wins first; absent: none
}

// NFQueueRule is what one flow rule carried.
type NFQueueRule struct {
	Name    string `json:"name"`    // of the rule
	Packets uint64 `json:"packets"` // that the rule itself decided; not those decided by a flow or fragment entry
}

// NFQueueBackend is what one backend was given.
type NFQueueBackend struct {
	Packets uint64 `json:"packets"`      // to the backend
	Bytes   uint64 `json:"bytes"`        // of those
	Opened  uint64 `json:"opened_flows"` // flows that it was given
}

// FragmentStatus is the fragment tables of all queues.
type FragmentStatus struct {
	Datagrams  int    `json:"datagrams"`  // remembered now
	Inserts    uint64 `json:"inserts"`    // datagrams entered
	Lookups    uint64 `json:"lookups"`    // fragments looked up
	Waited     uint64 `json:"waited"`     // fragments held
	Refused    uint64 `json:"refused"`    // datagrams refused because the table was full
	Poisoned   uint64 `json:"poisoned"`   // fragments that could not be held
	Collisions uint64 `json:"collisions"` // first fragments of a known datagram with another decision
	Expired    uint64 `json:"expired"`    // datagrams forgotten in time
	Unanswered uint64 `json:"unanswered"` // fragments whose first one never came
	// The next four count datagrams removed before their time to make room.
	EvictedKnown   uint64 `json:"evicted_known"`   // the first fragment was seen
	EvictedYoung   uint64 `json:"evicted_young"`   // of these, in the first half of their time to live
	EvictedWaiting uint64 `json:"evicted_waiting"` // early fragments were held
	EvictedLost    uint64 `json:"evicted_lost"`    // fragments were lost already
	HeldEvicted    uint64 `json:"held_evicted"`    // held fragments that were dropped to make room for others
}

// FlowTableStatus is the flow tables of all queues.
type FlowTableStatus struct {
	Flows     int    `json:"flows"`     // entries
	MaxFlows  int    `json:"max_flows"` // bound on those
	Proven    int    `json:"proven"`    // of flows: established TCP, others of two packets and more
	Evicted   uint64 `json:"evicted"`   // unproven ones, each for a new flow
	Refused   uint64 `json:"refused"`   // new flows without an entry: the table was full of proven ones
	Expired   uint64 `json:"expired"`   // entries that timed out
	Displaced uint64 `json:"displaced"` // proven ones, each for a packet whose connection id names a live owner
}

// TierCounters count fragments for other balancers of the tier.
type TierCounters struct {
	Sent      uint64 `json:"sent"`      // handed to the member that sees all fragments of the datagram
	Returned  uint64 `json:"returned"`  // that came back because the members' tables differ, and were taken here
	Unguarded uint64 `json:"unguarded"` // of sent: without a record, because limits.fragments was reached
}

// FastPathStatus says whether a TCX program marks packets before they are queued.
type FastPathStatus struct {
	InUse bool   `json:"in_use" metric:"weir_fast_path" help:"1 while the TCX program marks what it can before the queue."` // it does
	Why   string `json:"why,omitempty"`                                                                                     // why not; absent: it is in use
}
