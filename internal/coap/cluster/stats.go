package cluster

import "sync/atomic"

// Stats counts since New. The first eight are those of Californium's cluster health.
type Stats struct {
	Forwarded          uint64 `json:"forwarded" metric:"_forwarded_total" help:"Foreign datagrams sent to their owner."`
	Backwarded         uint64 `json:"backwarded" metric:"_backwarded_total" help:"Replies sent to the node that the request came through."`
	ProcessedForwarded uint64 `json:"processed_forwarded" metric:"_processed_forwarded_total" help:"Forwarded datagrams taken as own ones."`
	SentBackwarded     uint64 `json:"sent_backwarded" metric:"_sent_backwarded_total" help:"Replies of other nodes sent to their client."`
	DroppedForward     uint64 `json:"dropped_forward" metric:"_dropped_forward_total" help:"Foreign datagrams of unknown nodes, and malformed frames of forwarded datagrams."`
	DroppedBackward    uint64 `json:"dropped_backward" metric:"_dropped_backward_total" help:"Malformed frames of replies."`
	BadForward         uint64 `json:"bad_forward" metric:"_bad_forward_total" help:"Frames of forwarded datagrams with a wrong MAC; 0 without MAC."`
	BadBackward        uint64 `json:"bad_backward" metric:"_bad_backward_total" help:"Frames of replies with a wrong MAC; 0 without MAC."`
	ManagementReceived uint64 `json:"management_received" metric:"_management_received_total" help:"Pings and pongs of other nodes."`
	ManagementSent     uint64 `json:"management_sent" metric:"_management_sent_total" help:"Pings and pongs sent to other nodes."`
	MistakenIDs        uint64 `json:"mistaken_ids" metric:"_mistaken_ids_total" help:"Pings that announce this node's id, or another id than configured."`
	RefusedTargets     uint64 `json:"refused_targets" metric:"_refused_targets_total" help:"Frames for loopback, this host, metadata services, or an address that is no single client."`
	Strangers          uint64 `json:"strangers" metric:"_strangers_total" help:"Messages on the internal socket from an address that is no node."`
	Malformed          uint64 `json:"malformed" metric:"_malformed_total" help:"Messages on the internal socket that are neither frame nor ping, or are a ping that is not encrypted though the link is secured."`

	Relayed uint64 `json:"relayed" metric:"_relayed_total" help:"Datagrams of sessions that have moved, sent one node further."`
	Waited  uint64 `json:"waited" metric:"_waited_total" help:"Datagrams that came while their session was on its way to another node."`

	LinkSessions   uint64 `json:"link_sessions" metric:"_link_sessions" help:"Nodes with a DTLS session of the secured link."`
	LinkHandshakes uint64 `json:"link_handshakes" metric:"_link_handshakes_total" help:"DTLS handshakes of the secured link that were completed."`
	LinkFailed     uint64 `json:"link_failed" metric:"_link_failed_total" help:"DTLS handshakes of the secured link that were refused, or got no answer."`
	LinkRefused    uint64 `json:"link_refused" metric:"_link_refused_total" help:"DTLS records of the secured link that did not open, or were of no node."`
}

// counters is one worker's share, padded to cache lines of its own.
type counters struct {
	forwarded, backwarded, processedForwarded, sentBackwarded atomic.Uint64
	droppedForward, droppedBackward, badForward, badBackward  atomic.Uint64
	pingsReceived, pingsSent, mistakenIDs                     atomic.Uint64
	strangers, malformed, refusedTargets                      atomic.Uint64
	relayed, waited                                           atomic.Uint64
}

// Stats adds up the workers' counters.
func (c *Cluster) Stats() Stats {
	var s Stats
	for i := range c.counters {
		n := &c.counters[i]
		s.Forwarded += n.forwarded.Load()
		s.Backwarded += n.backwarded.Load()
		s.ProcessedForwarded += n.processedForwarded.Load()
		s.SentBackwarded += n.sentBackwarded.Load()
		s.DroppedForward += n.droppedForward.Load()
		s.DroppedBackward += n.droppedBackward.Load()
		s.BadForward += n.badForward.Load()
		s.BadBackward += n.badBackward.Load()
		s.ManagementReceived += n.pingsReceived.Load()
		s.ManagementSent += n.pingsSent.Load()
		s.MistakenIDs += n.mistakenIDs.Load()
		s.RefusedTargets += n.refusedTargets.Load()
		s.Strangers += n.strangers.Load()
		s.Malformed += n.malformed.Load()
		s.Relayed += n.relayed.Load()
		s.Waited += n.waited.Load()
	}
	if c.links != nil {
		l := c.links.Stats()
		s.LinkSessions, s.LinkHandshakes, s.LinkFailed, s.LinkRefused = l.Sessions, l.Handshakes, l.Failed, l.Refused
	}
	return s
}
