package turn

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/kernelrelay"
)

// turnOffload adapts the kernel's relay to the gateway's interface.
type turnOffload struct {
	o   *kernelrelay.Relay
	now func() int64 // the clock of the gateway
}

// openTurnOffload attaches the offload of a config. It returns nil for mode none.
func openTurnOffload(given *gateway.Config, log *slog.Logger) (*turnOffload, error) {
	defaults := given.WithDefaults()
	c := &defaults
	if c.Offload.Mode == "" || c.Offload.Mode == gateway.OffloadNone {
		return nil, nil
	}
	hook, err := attach.ParseHook(string(c.Offload.Mode))
	if err != nil {
		return nil, fmt.Errorf("offload.mode: %w", err)
	}
	if err := privilege.Check(privilege.TurnOffload); err != nil {
		if hook != attach.HookAuto {
			return nil, fmt.Errorf("offload: %w", err)
		}
		log.Warn("channels are relayed in user space", "why", err)
		return nil, nil
	}
	names := c.Offload.Interfaces
	if len(names) == 0 {
		if names, err = turnInterfaces(c); err != nil {
			return nil, fmt.Errorf("offload.interfaces: %w", err)
		}
	}
	o, err := kernelrelay.Open(kernelrelay.Config{Interfaces: names, Hook: hook, Log: log})
	if err != nil {
		return nil, fmt.Errorf("offload: %w", err)
	}
	return &turnOffload{o, gateway.Clock()}, nil
}

// turnInterfaces returns the interfaces with addresses to which packets of clients and peers may be sent.
func turnInterfaces(c *gateway.Config) (names []string, err error) {
	var wanted []netip.Addr
	for i := range c.Listeners {
		if l := &c.Listeners[i]; l.Protocol == gateway.UDP {
			wanted = append(append(wanted, l.Address), l.Relay...)
		}
	}
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for i := range all {
		if all[i].Flags&net.FlagUp != 0 && (len(all[i].HardwareAddr) == 6 || all[i].Flags&net.FlagLoopback != 0) && carries(&all[i], wanted) {
			names = append(names, all[i].Name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("no Ethernet interface has an address of a UDP listener; name those that clients and peers are reached by")
	}
	return names, nil
}

// carries reports whether an interface has one of the addresses. The wildcard matches every address except loopback
// addresses.
func carries(i *net.Interface, wanted []netip.Addr) bool {
	list, err := i.Addrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(list, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			return false
		}
		own := prefix.Addr().Unmap()
		return slices.ContainsFunc(wanted, func(want netip.Addr) bool {
			return want.Unmap() == own || want.IsUnspecified() && !own.IsLoopback() && !own.IsLinkLocalUnicast() || want.IsLoopback() && own.IsLoopback()
		})
	})
}

func (t *turnOffload) Add(c gateway.OffloadChannel) (uint32, error) {
	return t.o.Add(kernelrelay.Channel{
		Client: c.Client, Listener: c.Server, Relay: c.Relay, Peer: c.Peer, Number: c.Number,
		Allocation: c.Allocation, BytesPerSecond: c.BytesPerSecond, Burst: c.Burst,
	})
}

func (t *turnOffload) Permit(id uint32, toClient bool) error { return t.o.Permit(id, toClient) }

func (t *turnOffload) Remove(id uint32) (up, down gateway.OffloadTraffic, err error) {
	u, d, err := t.o.Remove(id)
	return t.traffic(u), t.traffic(d), err
}

func (t *turnOffload) Counters(f func(id uint32, up, down gateway.OffloadTraffic)) error {
	return t.o.Counters(func(id uint32, up, down kernelrelay.Traffic) { f(id, t.traffic(up), t.traffic(down)) })
}

func (t *turnOffload) traffic(from kernelrelay.Traffic) gateway.OffloadTraffic {
	out := gateway.OffloadTraffic{Packets: from.Packets, Bytes: from.Bytes}
	if !from.Last.IsZero() {
		out.Last = t.now() - int64(time.Since(from.Last))
	}
	return out
}

// Describe names the hook of each interface, and the reason for it.
func (t *turnOffload) Describe() string {
	var parts []string
	for _, i := range t.o.Report().Interfaces {
		parts = append(parts, fmt.Sprintf("%s on %s (%s)", i.Hook, i.Name, i.Why))
	}
	return strings.Join(parts, ", ")
}

// into sets the offload in a gateway's options; if t is nil, nothing changes. On TCX, datagrams joined by GRO would
// have to stay in user space.
func (t *turnOffload) into(options *gateway.Options) {
	if t == nil {
		return
	}
	options.Offload = t
	options.NoCoalesce = slices.ContainsFunc(t.o.Report().Interfaces, func(i attach.InterfaceReport) bool { return i.Hook == attach.HookTCX.String() })
}

// measured adds the relay's own metrics to those of an admin API.
func (t *turnOffload) measured(api *admin.Config) {
	if t == nil {
		return
	}
	others := api.Metrics
	api.Metrics = func() []metrics.Sample { return append(others(), metrics.Of(t.o.Report())...) }
}

func (t *turnOffload) close(log *slog.Logger) {
	if t == nil {
		return
	}
	if err := t.o.Close(); err != nil {
		log.Error("end the relay in the kernel", "error", err)
	}
}
