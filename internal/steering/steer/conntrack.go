package steer

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// entry is the conntrack state of a flow. It is unproven at first:
//
//   - In mode NAT the first reply of the backend proves it (an ICMP error does
//     not); a TCP flow the client's acknowledgement after that.
//   - In the other modes, whose replies go another way, the next packet of the
//     client proves it; a TCP flow one that leaves it established.
//
// A full table evicts unproven entries for new flows, see [flow.Table].
type entry struct {
	record  *backendRecord
	reply   flow.Key       // key in replies; zero: none
	snat    netip.AddrPort // what the backend sees as the source; zero: the client
	state   tcpState
	replied bool // the backend has answered without refusing
	proved  bool // the connection, of several on these ports, has been established and proven
}

// tcpState is the part of TCP's state that timeouts need. With DSR only the client's packets are visible.
type tcpState uint8

const (
	notTCP tcpState = iota
	opening
	established
	closing
)

// renewStep is the minimum change of an expiry that is written; the kernel data path writes its map equally rarely.
const renewStep = time.Second

// next returns the state after a segment with flags. A SYN on an established
// connection changes nothing: its backend answers it with a challenge (RFC 5961
// section 4), and if the client has forgotten the connection it resets it then.
func (s tcpState) next(flags uint8, fromClient bool) tcpState {
	switch {
	case s == notTCP:
		return s
	case flags&(packet.FIN|packet.RST) != 0:
		return closing
	case s == closing && fromClient && opens(flags):
		return opening
	case s == opening && flags&packet.ACK != 0 && fromClient:
		return established
	}
	return s
}

// opens reports whether flags begin a connection. On the ports of a closed connection that is a new one (RFC 9293 section
// 3.6.1).
func opens(flags uint8) bool {
	return flags&(packet.SYN|packet.ACK|packet.FIN|packet.RST) == packet.SYN
}

// answers reports whether flags are those of the answer to that. On a closed handshake it opens it again: a client whose port had
// another connection resets that connection's late SYN-ACK, and then gets its own.
func answers(flags uint8) bool {
	return flags&(packet.SYN|packet.ACK|packet.FIN|packet.RST) == packet.SYN|packet.ACK
}

func firstState(proto, flags uint8) tcpState {
	switch {
	case proto != flow.ProtoTCP:
		return notTCP
	case flags&(packet.FIN|packet.RST) != 0:
		return closing
	case flags&packet.SYN != 0:
		return opening
	}
	return established
}

// timeout returns how long a flow in this state may be silent.
func (s tcpState) timeout(service *lb.Service, proto uint8) time.Duration {
	switch s {
	case opening:
		return service.Timeouts.TCPOpening
	case closing:
		return service.Timeouts.TCPClosing
	}
	return service.Timeout(proto)
}

// find returns the live entry of k if its backend still serves service.
func (e *Engine) find(k flow.Key, service *lb.Service, now time.Duration) (*entry, flow.Ref) {
	if service.Stateless {
		return nil, -1
	}
	en, at := e.flows.Find(k, now)
	if en == nil || en.record.backend == nil || en.record.backend.Service != service ||
		en.record.backend.State == lb.Down {
		return nil, at
	}
	return en, at
}

// touch updates the TCP state and renews an entry. The first SYN-ACK of a handshake renews it exactly (see handshakeTime).
// The entry of the replies is renewed together with it, so that both expire at the same time.
func (e *Engine) touch(en *entry, at flow.Ref, proto, flags uint8, fromClient bool, now time.Duration) {
	service := en.record.backend.Service
	was := en.state
	en.state = was.next(flags, fromClient)
	if was == closing && !fromClient && answers(flags) && !en.proved {
		en.state = opening
	}
	if was == closing && en.state == opening {
		en.replied, en.proved = false, false // a new connection must prove itself again
	}
	ttl, step := en.state.timeout(service, proto), renewStep
	if !fromClient && !en.replied && en.state != closing {
		en.replied = true
		if en.state == opening {
			step = 0
		}
	}
	renewed := e.flows.RenewAt(at, now, ttl, step)
	if renewed && en.reply != (flow.Key{}) {
		e.replies.Renew(en.reply, now, ttl, 0)
	}
	proves := en.proves(service.Mode, flags, fromClient)
	en.proved = en.proved || proves
	proven := proves && !e.flows.Proven(at)
	if proven {
		e.flows.Prove(at)
	}
	if renewed || proven || en.state != was {
		e.keep(e.flows.Key(at), en, at)
	}
}

// proves reports whether a packet of a flow that has an entry proves it.
func (en *entry) proves(mode lb.Mode, flags uint8, fromClient bool) bool {
	switch {
	case en.state == notTCP:
		return mode != lb.NAT || !fromClient
	case en.state != established:
		return false
	case mode != lb.NAT:
		return true
	}
	return en.replied && fromClient && flags&packet.ACK != 0
}

// open makes the entry of a flow that goes to b and replaces an older one. A reason other than ReasonNone says why that was
// not possible.
func (e *Engine) open(k flow.Key, b *lb.Backend, flags uint8, now time.Duration) (*entry, lb.Reason) {
	if old := e.flows.Get(k, now); old != nil {
		e.release(-1, k, old) // the existing entry stays proven
	} else {
		e.flows.Delete(k)
	}
	en := entry{record: e.placeOf(b), state: firstState(k.Proto, flags)}
	ttl := en.state.timeout(b.Service, k.Proto)
	if !e.flows.Put(k, en, now, ttl) {
		return nil, lb.ReasonFlowTableFull
	}
	made, at := e.flows.Find(k, now)
	if b.Service.Mode == lb.NAT && !e.options.Proxy {
		if problem := e.reserve(made, k, b, now, ttl); problem != lb.ReasonNone {
			e.flows.Delete(k)
			return nil, problem
		}
	}
	e.keep(k, made, at)
	return made, lb.ReasonNone
}

// release frees the resources that an entry holds outside of its table.
func (e *Engine) release(at flow.Ref, k flow.Key, en *entry) {
	if at >= 0 && e.options.Journal != nil {
		e.options.Journal.Forget(int(at))
	}
	if en.reply != (flow.Key{}) {
		if owner := e.replies.Get(en.reply, minTime); owner != nil && *owner == k {
			e.replies.Delete(en.reply)
		}
	}
	if state := en.record.state; en.snat.IsValid() && state.snatMisses > 0 {
		state.snatMisses--
	}
}

// displace makes room for a flow that a CID steers, in mode NAT and in a table full of proven flows: it removes the flow
// that expires next if that is of the same service. It is the only exception to the rule that proven flows stay. Because of
// the reserve for unproven flows (flow.Table) it happens only in tables of one entry.
func (e *Engine) displace(service *lb.Service) bool {
	k, en := e.flows.Next()
	if en == nil || e.flows.Len() < e.flows.Max() || en.record.state.service != service {
		return false
	}
	e.flows.Delete(k)
	e.displaced++
	return true
}

// Renew keeps a flow, named as seen from the client, alive as a reply does. It is for a data path whose sockets receive the
// replies (Options.Proxy).
func (e *Engine) Renew(k flow.Key, now time.Duration) {
	if en, at := e.flows.Find(k, now); en != nil && en.record.backend != nil {
		e.touch(en, at, k.Proto, 0, false, now)
	}
}

// Forget removes the conntrack entry of a flow, as seen from the client. Its next packet
// is a new flow.
func (e *Engine) Forget(k flow.Key) bool { return e.flows.Delete(k) }

// minTime is before every expiry, never after.
const (
	minTime = time.Duration(-1 << 63)
	never   = time.Duration(1<<63 - 1)
)

// Reassign moves a flow, as seen from the client, to another backend of its
// service, opening its entry if there is none. It returns false if there is no
// room for it, or b is not in the snapshot in force.
func (e *Engine) Reassign(k flow.Key, b *lb.Backend, now time.Duration) bool {
	s := b.Service
	if s.Index >= len(e.services) || e.services[s.Index].service != s {
		return false
	}
	_, reason := e.open(k, b, packet.ACK, now)
	return reason == lb.ReasonNone
}

// Rebalance removes every flow and changes the hash: the next packet of each flow goes where a new hash leads, most likely
// to another backend. It is for the operator of a user-space balancer, since it makes this Engine disagree with its tier
// about new flows. It returns how many flows were removed.
func (e *Engine) Rebalance() int {
	n := e.flows.Len()
	e.roll++
	e.flows.Clear()
	e.replies.Clear()
	for _, state := range e.services {
		state.snatMisses, state.snatStays = 0, 0
	}
	return n
}
