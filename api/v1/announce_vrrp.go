package v1

import "time"

// VirtualRouter is one virtual router of one family on this machine (VRRP version 3, RFC 9568).
type VirtualRouter struct {
	Interface string `json:"interface" label:"interface"` // on whose network the addresses are
	ID        int    `json:"vrid" label:"vrid"`           // number of the virtual router
	Family    string `json:"family" label:"family"`       // ipv4 or ipv6
	// State is active (this machine has the addresses; master in older documents), backup or down.
	State     string             `json:"state" metric:"weir_announce_vrrp_active" when:"active" help:"1 while this machine holds the addresses of the virtual router."`
	Since     time.Time          `json:"since"`                                                                                                                                                // of the state
	Reason    string             `json:"reason,omitempty"`                                                                                                                                     // why it is down; absent: it is not
	Problem   string             `json:"problem,omitempty" metric:"weir_announce_vrrp_problem" help:"1 while the virtual router needs attention."`                                             // what an operator should look at; absent: nothing
	Priority  int                `json:"priority"`                                                                                                                                             // 1 to 255
	Interval  float64            `json:"interval"`                                                                                                                                             // seconds between two advertisements
	Hold      string             `json:"hold"`                                                                                                                                                 // address: on the interface; arp: questions are answered
	Addresses []string           `json:"addresses"`                                                                                                                                            // in the order of advertisements
	Peer      *VirtualRouterPeer `json:"peer,omitempty"`                                                                                                                                       // the router that advertised last; absent: none has
	Entered   map[string]uint64  `json:"entered" metric:"weir_announce_vrrp_transitions_total" key:"state" help:"Changes of the virtual router to the state: active, backup or down."`         // changes to each state since the start
	Sent      uint64             `json:"sent" metric:"weir_announce_vrrp_sent_total" help:"Advertisements sent for the virtual router."`                                                       // advertisements
	Received  uint64             `json:"received" metric:"weir_announce_vrrp_received_total" help:"Advertisements of other routers that were accepted."`                                       // advertisements
	Refused   map[string]uint64  `json:"refused" metric:"weir_announce_vrrp_refused_total" key:"reason" help:"Advertisements that were ignored, by what is wrong with them."`                  // advertisements that were ignored, by reason
	Dropped   uint64             `json:"dropped" metric:"weir_announce_vrrp_dropped_total" help:"Packets for the virtual router that came faster than it reads."`                              // advertisements, ARP and neighbour discovery
	Announced uint64             `json:"announced" metric:"weir_announce_vrrp_announcements_total" help:"Frames of ARP and neighbour discovery that told where an address is."`                // frames
	Answered  uint64             `json:"answered" metric:"weir_announce_vrrp_answers_total" help:"ARP requests and neighbour solicitations that were answered, with hold arp."`                // questions, with hold arp
	Claimed   uint64             `json:"claimed" metric:"weir_announce_vrrp_claims_total" help:"Frames in which another machine claimed an address of the virtual router."`                    // frames
	Errors    uint64             `json:"errors" metric:"weir_announce_vrrp_errors_total" help:"Packets that could not be sent or received, and addresses that could not be held or given up."` // since the start
}

// VirtualRouterPeer is another machine of a virtual router.
type VirtualRouterPeer struct {
	Address  string    `json:"address"`  // source of its advertisements
	Priority int       `json:"priority"` // 0: it gave the addresses up
	Interval float64   `json:"interval"` // seconds between its advertisements
	At       time.Time `json:"at"`       // of its last advertisement
}
