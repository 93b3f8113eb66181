package v1

import "time"

// AnnounceStatus is what a load balancer announces of its addresses. It is also the output of `weir lb announce --json`.
type AnnounceStatus struct {
	// State is serving, leaving (a planned end: what is announced is less preferred) or withdrawn.
	State    string           `json:"state" metric:"weir_announce_serving" when:"serving" help:"1 while this balancer is neither withdrawn by an operator nor about to end."`
	Prefixes []AnnouncePrefix `json:"prefixes" metric:""`                                                                             // ordered
	Changes  uint64           `json:"changes" metric:"weir_announce_changes_total" help:"Prefixes that were announced or withdrawn."` // since the start
	// Error is why a driver could not do what was decided; it is tried again. Absent: all is done.
	Error string          `json:"error,omitempty" metric:"weir_announce_failed" help:"1 while what should be announced or withdrawn could not be."`
	VRRP  []VirtualRouter `json:"vrrp,omitempty" metric:""` // by interface, number and family; absent: none are configured
	BGP   *BGPStatus      `json:"bgp,omitempty" metric:""`  // sessions with routers; absent: none are configured
}

// AnnouncePrefix is one address or prefix.
type AnnouncePrefix struct {
	Prefix   string   `json:"prefix" label:"prefix"`                                                                        // such as 192.0.2.1/32
	State    string   `json:"state" metric:"weir_announce_prefix" when:"announced" help:"1 while the prefix is announced."` // announced, retiring (with the community graceful-shutdown) or withdrawn
	Reason   string   `json:"reason,omitempty"`                                                                             // why it is not announced; absent: it is
	Services []string `json:"services"`                                                                                     // whose addresses are in it
}

// BGPStatus is the BGP speaker.
type BGPStatus struct {
	AS         uint32         `json:"as"`                   // of this balancer
	RouterID   string         `json:"router_id"`            // of this balancer
	Listen     string         `json:"listen,omitempty"`     // address for connections of neighbours; absent: this balancer opens all of them
	Filtered   []string       `json:"filtered,omitempty"`   // prefixes that should be announced and that the speaker does not have, as a policy drops them; absent: none
	Neighbours []BGPNeighbour `json:"neighbours" metric:""` // in the order of the configuration
}

// BGPNeighbour is one router.
type BGPNeighbour struct {
	Address string `json:"address" label:"neighbour"` // of the router
	AS      uint32 `json:"as"`                        // of the router
	// State is that of the session: idle, connect, active, open_sent, open_confirm or established.
	State string    `json:"state" metric:"weir_announce_bgp_established" when:"established" help:"1 while the BGP session with the neighbour is established."`
	Since time.Time `json:"since"` // when it was last established, or was lost, or was configured
	// Problem is what an operator should look at. Absent: nothing.
	Problem    string `json:"problem,omitempty" metric:"weir_announce_bgp_problem" help:"1 while the BGP session with the neighbour needs attention."`
	Advertised uint64 `json:"advertised" metric:"weir_announce_bgp_advertised" help:"Prefixes that the neighbour was sent."`           // now
	Received   uint64 `json:"received" metric:"weir_announce_bgp_received" help:"Prefixes that the neighbour has sent; none is used."` // now; none is used
	Losses     uint64 `json:"losses" metric:"weir_announce_bgp_losses_total" help:"BGP sessions with the neighbour that ended."`       // since the start
	BFD        string `json:"bfd,omitempty" metric:"weir_announce_bfd_up" when:"up" help:"1 while BFD sees the neighbour."`            // up, down, init or admin_down; absent: off
}

// AnnounceAnswer is the answer of POST /announce/withdraw and /announce/resume.
type AnnounceAnswer struct {
	State string `json:"state"` // serving, leaving or withdrawn
}
