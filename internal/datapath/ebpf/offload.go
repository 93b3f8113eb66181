package ebpf

import (
	"errors"
	"log/slog"
	"net/netip"
	"time"
)

// OffloadConfig is what the relaying of ChannelData in the kernel needs to know.
type OffloadConfig struct {
	// Interfaces that packets of clients and of peers come in on; lo for those of this machine.
	Interfaces []string
	Hook       Hook
	// MaxChannels bounds the table. Default 16384.
	MaxChannels int
	// Log gets what an operator should know; nil: silent.
	Log *slog.Logger
}

// OffloadChannel is one bound channel of an allocation over UDP (RFC 8656, section 12): what comes from Client to Listener
// with Number leaves from Relay to Peer without its header, and the other way round.
type OffloadChannel struct {
	Client, Listener, Relay, Peer netip.AddrPort
	Number                        uint16
	// BytesPerSecond bounds user data of both directions, with a credit of Burst bytes; 0: no bound. Channels of one
	// Allocation share it.
	BytesPerSecond, Burst uint64
	Allocation            uint64
}

// OffloadTraffic is what was relayed in one direction.
type OffloadTraffic struct {
	Packets, Bytes uint64    // of user data, without ChannelData headers
	Last           time.Time // zero: never
}

// OffloadReport is where the kernel relays, and why there.
type OffloadReport struct {
	Hook       string            `json:"hook"` // xdp, tcx, mixed or none
	Interfaces []InterfaceReport `json:"interfaces"`
	Channels   int               `json:"channels"`
	Max        int               `json:"max_channels"`
	Refused    map[string]uint64 `json:"refused"` // channels that stayed in user space, by reason
	Packets    map[string]uint64 `json:"packets"` // by what became of them
}

// Errors of Add: the channel stays in user space.
var (
	ErrOffloadFull     = errors.New("the kernel's table of channels is full")
	ErrOffloadUnsuited = errors.New("the kernel does not relay such a channel")
	ErrOffloadNone     = errors.New("no interface relays in the kernel")
	errOffloadGone     = errors.New("no such channel in the kernel")
)

// Offload relays ChannelData of UDP clients in the kernel. Its methods may be called at the same time.
type Offload struct{}

// OpenOffload loads the programs and attaches them in the network namespace of the calling thread.
func OpenOffload(c OffloadConfig) (*Offload, error) { return nil, ErrOffloadNone }

// Add has the kernel relay a channel from now on; its answer to the ChannelBind request must be queued by then. The error
// wraps ErrOffloadFull, ErrOffloadUnsuited or ErrOffloadNone where packets simply stay in user space.
func (o *Offload) Add(c OffloadChannel) (id uint32, err error) { return 0, ErrOffloadNone }

// Permit says whether the peer may send to the client (its permission, RFC 8656 section 9).
func (o *Offload) Permit(id uint32, toClient bool) error { return errOffloadGone }

// Remove ends the relaying of a channel and returns its totals. The number is not given again within a second.
func (o *Offload) Remove(id uint32) (up, down OffloadTraffic, err error) {
	return up, down, errOffloadGone
}

// Counters calls yield with what each channel relayed since Add: up to the peer, down to the client.
func (o *Offload) Counters(yield func(id uint32, up, down OffloadTraffic)) error { return nil }

// Report looks at everything once.
func (o *Offload) Report() OffloadReport { return OffloadReport{} }

// Close detaches: packets reach the sockets again. Nothing stays.
func (o *Offload) Close() error { return nil }
