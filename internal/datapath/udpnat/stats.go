package udpnat

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// Counters are running totals. Datagrams are counted once each way.
type Counters struct {
	Received         uint64 `json:"received"`          // from clients
	Forwarded        uint64 `json:"forwarded"`         // to backends
	ForwardedBytes   uint64 `json:"forwarded_bytes"`   //
	Backwarded       uint64 `json:"backwarded"`        // to clients
	BackwardedBytes  uint64 `json:"backwarded_bytes"`  //
	Filtered         uint64 `json:"filtered"`          // no DTLS record
	LostForward      uint64 `json:"lost_forward"`      // faults
	LostBackward     uint64 `json:"lost_backward"`     //
	TooLong          uint64 `json:"too_long"`          // size fault
	Truncated        uint64 `json:"truncated"`         //
	Reordered        uint64 `json:"reordered"`         //
	WrongRouted      uint64 `json:"wrong_routed"`      // replies that came from elsewhere
	Moved            uint64 `json:"moved"`             // of these, those that moved their entry
	Undecided        uint64 `json:"undecided"`         // steering said drop; the reasons say why
	EntriesFull      uint64 `json:"entries_full"`      // new flows dropped at MaxEntries, all of them proven
	Exhausted        uint64 `json:"exhausted"`         // no descriptor or port for a new entry
	Evicted          uint64 `json:"evicted"`           // entries no backend had answered, closed for new ones
	Displaced        uint64 `json:"displaced"`         // answered entries closed for datagrams whose CID names a live owner
	Expired          uint64 `json:"expired"`           // entries that timed out
	Opened           uint64 `json:"opened"`            // entries made
	Cleared          uint64 `json:"cleared"`           // entries dropped by the operator or with their VIP
	SendErrors       uint64 `json:"send_errors"`       // to backends
	ReplyErrors      uint64 `json:"reply_errors"`      // to clients
	Refused          uint64 `json:"refused"`           // ICMP: nobody listens at the backend
	ReceiveErrors    uint64 `json:"receive_errors"`    //
	HeldFull         uint64 `json:"held_full"`         // datagrams not reordered for want of room
	BackendTimeouts  uint64 `json:"backend_timeouts"`  // backends that turned stale
	ReceiveOverflows uint64 `json:"receive_overflows"` // datagrams the kernel dropped before us
}

func (c *Counters) add(o *Counters) {
	for _, f := range []struct {
		to *uint64
		by uint64
	}{
		{&c.Received, o.Received},
		{&c.Forwarded, o.Forwarded},
		{&c.ForwardedBytes, o.ForwardedBytes},
		{&c.Backwarded, o.Backwarded},
		{&c.BackwardedBytes, o.BackwardedBytes},
		{&c.Filtered, o.Filtered},
		{&c.LostForward, o.LostForward},
		{&c.LostBackward, o.LostBackward},
		{&c.TooLong, o.TooLong},
		{&c.Truncated, o.Truncated},
		{&c.Reordered, o.Reordered},
		{&c.WrongRouted, o.WrongRouted},
		{&c.Moved, o.Moved},
		{&c.Undecided, o.Undecided},
		{&c.EntriesFull, o.EntriesFull},
		{&c.Exhausted, o.Exhausted},
		{&c.Evicted, o.Evicted},
		{&c.Displaced, o.Displaced},
		{&c.Expired, o.Expired},
		{&c.Opened, o.Opened},
		{&c.Cleared, o.Cleared},
		{&c.SendErrors, o.SendErrors},
		{&c.ReplyErrors, o.ReplyErrors},
		{&c.Refused, o.Refused},
		{&c.ReceiveErrors, o.ReceiveErrors},
		{&c.HeldFull, o.HeldFull},
		{&c.BackendTimeouts, o.BackendTimeouts},
		{&c.ReceiveOverflows, o.ReceiveOverflows},
	} {
		*f.to += f.by
	}
}

// Backend is one address of a backend as the data path sees it.
type Backend struct {
	Target    lb.Target
	Service   string
	Name      string
	Addr      netip.AddrPort
	State     BackendState
	Override  lb.State // up, draining or down in the snapshot
	Entries   int64
	Silent    time.Duration // since the first unanswered datagram, 0: none
	LastReply time.Duration // ago; below 0: never
}

// Stats is the state of a Datapath at one moment.
type Stats struct {
	Generation uint64
	Entries    int
	Proven     int // of entries: a backend answered
	MaxEntries int
	Reverse    bool
	Counters   Counters
	Reasons    map[string]uint64
	Backends   []Backend
	Faults     Faults
	Listeners  []netip.AddrPort
}

// Entry is one NAT entry.
type Entry struct {
	Client   netip.AddrPort
	VIP      netip.AddrPort
	Outgoing netip.AddrPort // what the backend sees
	Backend  lb.Target
	Addr     netip.AddrPort
	Idle     time.Duration
}
