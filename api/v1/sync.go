package v1

import "time"

// SyncStatus is how the state of translated flows is shared with other balancers.
type SyncStatus struct {
	// Complete: since the start, the state of the peers has arrived, or they were not reached in time.
	Complete bool       `json:"complete" metric:"weir_sync_complete" help:"1 once the state of the peers has arrived, or they were not reached in time."`
	Reason   string     `json:"reason,omitempty"`                                                                                                            // why it is not complete; absent: it is
	Listen   string     `json:"listen"`                                                                                                                      // address for connections of peers
	Error    string     `json:"error,omitempty" metric:"weir_sync_failed" help:"1 while this balancer does not listen for its peers."`                       // absent: there is none
	Given    int        `json:"given" metric:"weir_sync_flows_given" help:"Flows that other balancers have given and that no packet has used here."`         // now
	Rejected uint64     `json:"rejected" metric:"weir_sync_connections_rejected_total" help:"Connections that were not of a peer, or did not have the key."` // since the start
	Interval float64    `json:"interval_seconds" metric:"weir_sync_interval_seconds" help:"Time between two looks at the flow table."`                       // follows from the size of the table
	Peers    []SyncPeer `json:"peers" metric:""`                                                                                                             // in the order of the configuration
}

// SyncPeer is another balancer.
type SyncPeer struct {
	Address string       `json:"address" label:"peer"` // where it listens
	Out     SyncSent     `json:"out" metric:""`        // the connection to it, with the state of this balancer
	In      SyncReceived `json:"in" metric:""`         // the connection from it, with its state
}

// SyncSent is what a peer is sent.
type SyncSent struct {
	Connected bool       `json:"connected" metric:"weir_sync_out_connected" help:"1 while this balancer sends its state to the peer."`                                                      // now
	Since     *time.Time `json:"since,omitempty"`                                                                                                                                           // when the connection began; absent: there is none
	Complete  bool       `json:"complete" metric:"weir_sync_out_complete" help:"1 once the peer has all state that there was when it was connected."`                                       // of this connection
	Error     string     `json:"error,omitempty"`                                                                                                                                           // why there is no connection; absent: there is one, or none was tried
	Sent      uint64     `json:"sent" metric:"weir_sync_flows_sent_total" help:"States of flows that the peer was sent."`                                                                   // since the start, as what follows
	Ended     uint64     `json:"ended" metric:"weir_sync_flows_sent_ended_total" help:"Ends of flows that the peer was sent."`                                                              // before their time
	Refused   uint64     `json:"refused" metric:"weir_sync_flows_sent_refused_total" help:"States of flows that the peer has refused."`                                                     // its status has the reasons
	Lost      uint64     `json:"lost" metric:"weir_sync_flows_lost_total" help:"States of flows that were sent when a connection ended, without an acknowledgement."`                       // they are sent again
	Losses    uint64     `json:"losses" metric:"weir_sync_out_losses_total" help:"Connections to the peer that ended."`                                                                     // not those that did not come to be
	Lag       float64    `json:"lag_seconds" metric:"weir_sync_lag_seconds" help:"Time from the beginning of a look at the flow table to the acknowledgement of what it found, last seen."` // seconds
}

// SyncReceived is what a peer has sent.
type SyncReceived struct {
	Connected bool              `json:"connected" metric:"weir_sync_in_connected" help:"1 while the peer sends its state."`                                // now
	Since     *time.Time        `json:"since,omitempty"`                                                                                                   // when the connection began; absent: there is none
	Complete  bool              `json:"complete" metric:"weir_sync_in_complete" help:"1 once all state that the peer had at its connection is here."`      // of this connection
	Error     string            `json:"error,omitempty"`                                                                                                   // why the last connection ended; absent: none has
	Received  uint64            `json:"received" metric:"weir_sync_flows_received_total" help:"States of flows that the peer has sent."`                   // since the start, as what follows
	Ended     uint64            `json:"ended" metric:"weir_sync_flows_received_ended_total" help:"Ends of flows that the peer has sent."`                  // before their time
	Refused   map[string]uint64 `json:"refused" metric:"weir_sync_flows_refused_total" key:"reason" help:"States of flows of the peer that were refused."` // by reason; see docs/lb-sync.md
}
