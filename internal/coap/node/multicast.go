package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/udpio"
)

// Multicast lets the plain listeners answer discovery, GET /.well-known/core, at multicast groups on their own ports (RFC 7252
// section 8). Groups are joined when the server starts.
type Multicast struct {
	// Groups to join: of the addresses that an interface has, IPv4 or IPv6.
	Groups     []netip.Addr `yaml:"groups,omitempty" default:"224.0.1.187, ff02::fd and ff05::fd" bounds:"multicast addresses"`
	Interfaces []string     `yaml:"interfaces,omitempty" default:"all that are up and can receive multicast"` // on which groups are joined
	// Leisure: an answer leaves at a random time within this. With group_size and rate it is the size of the answer times group_size
	// divided by rate (RFC 7252 section 8.2).
	Leisure   time.Duration `yaml:"leisure,omitempty" default:"5s" range:"1ms to 2m"`
	GroupSize int           `yaml:"group_size,omitempty" default:"unknown" range:"1 to 1000000"` // estimate of the servers in a group
	Rate      int           `yaml:"rate,omitempty" default:"unknown" range:"1 to 1000000000"`    // bytes per second that a client's network may receive from all of them
}

// discoveryGroups are All CoAP Nodes (RFC 7252 section 12.8).
func discoveryGroups() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{224, 0, 1, 187}), netip.MustParseAddr("ff02::fd"), netip.MustParseAddr("ff05::fd")}
}

// validate reports invalid values, with their keys below multicast.
func (m *Multicast) validate(plain bool) error {
	var wrong keyerror.List
	for i, group := range m.Groups {
		bad := !group.IsMulticast() || group.Is4In6() || group.Zone() != ""
		wrong.If(bad, fmt.Sprintf("groups[%d]", i), "%s is no multicast address; use 224.0.1.187, ff02::fd or ff05::fd", group)
	}
	for i, name := range m.Interfaces {
		_, err := net.InterfaceByName(name)
		wrong.If(err != nil, fmt.Sprintf("interfaces[%d]", i), "there is no interface %q", name)
	}
	wrong.If(!plain, "groups", "only listeners for plain CoAP over UDP can join; add listen")
	wrong.If(m.Leisure != 0 && (m.Leisure < time.Millisecond || m.Leisure > 2*time.Minute), "leisure", "%s is not between 1ms and 2m", m.Leisure)
	wrong.If(m.GroupSize < 0 || m.GroupSize > 1000000, "group_size", "%d is not between 1 and 1000000", m.GroupSize)
	wrong.If(m.Rate < 0 || m.Rate > 1000000000, "rate", "%d is not between 1 and 1000000000 bytes per second", m.Rate)
	wrong.If((m.GroupSize > 0) != (m.Rate > 0), "group_size", "it counts together with rate; set both or none")
	return wrong.Err()
}

func (m *Multicast) leisure() exchange.Leisure {
	if m == nil {
		return exchange.Leisure{}
	}
	return exchange.Leisure{Default: m.Leisure, GroupSize: m.GroupSize, Rate: m.Rate}
}

// groupMember is the worker of a listener that answers what comes to its groups.
type groupMember struct {
	worker  *engine.Worker
	handler *handler
	out     []byte
}

// groupAnswer is the longest answer to a request to a group, in bytes: more than that in one datagram needs fragments.
const groupAnswer = 1280

// receive handles a datagram to a group on the worker's goroutine.
func (g *groupMember) receive(datagram []byte, from netip.AddrPort) {
	h := g.handler
	now := g.worker.Now()
	p := g.worker.Credit(from, len(datagram))
	s := h.sessionOf(p)
	h.now = now
	out := g.out
	if !p.Proven() {
		out = out[:0:max(0, min(cap(out), p.Budget()))]
	}
	h.endpoint.ReceiveMulticast(&s.Session.Session, datagram, out, now)
	h.awaken()
}

// groupSocket receives what comes to one group by one interface.
type groupSocket struct {
	conn   *udpio.Conn
	member *groupMember
}

// groupBatch is how many datagrams one call takes, and groupDatagram the longest request, in bytes.
const (
	groupBatch    = 16
	groupDatagram = 1500
)

// serve passes datagrams to the worker until ctx ends. Those for which the worker has no room are lost, as in a network.
func (g *groupSocket) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = g.conn.Close() })
	defer stop()
	messages := udpio.NewMessages(groupBatch, groupDatagram)
	for {
		n, err := g.conn.ReadBatch(messages, udpio.Forever)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil && !errors.Is(err, udpio.ErrWoken):
			return err
		}
		for i := range messages[:n] {
			m := &messages[i]
			if m.Truncated {
				continue
			}
			datagram, from := slices.Clone(m.Buf[:m.N]), m.Addr
			g.member.worker.Post(func() { g.member.receive(datagram, from) })
		}
	}
}

// join opens the sockets of a listener's groups.
func (n *Node) join(l *listener) error {
	cfg := n.cfg.Multicast
	if cfg == nil || l.member == nil {
		return nil
	}
	groups := cfg.Groups
	if len(groups) == 0 {
		groups = discoveryGroups()
	}
	devices, err := cfg.devices(l.addr().Addr())
	if err != nil {
		return err
	}
	joined := 0
	for _, device := range devices {
		for _, group := range groups {
			if group.Is4() && !device.v4 || group.Is6() && !device.v6 {
				continue
			}
			address := group
			if group.IsLinkLocalMulticast() && group.Is6() {
				address = group.WithZone(strconv.Itoa(device.Index))
			}
			opened, err := udpio.Listen(udpio.Config{Addr: netip.AddrPortFrom(address, l.addr().Port()), Join: device.Index, Batch: groupBatch})
			if err != nil {
				return fmt.Errorf("multicast: on %s: %w", device.Name, err)
			}
			l.groups = append(l.groups, &groupSocket{conn: opened.Conn(0), member: l.member})
			joined++
			n.cfg.Log.Info("joined", "group", netip.AddrPortFrom(group, l.addr().Port()), "interface", device.Name)
		}
	}
	if joined == 0 {
		n.cfg.Log.Warn("no interface of this listener can join a multicast group", "uri", l.uri(), "remedy", "name one in multicast.interfaces, and listen on an address that it has")
	}
	return nil
}

// groupDevice is an interface, and the families in which a listener can answer by it.
type groupDevice struct {
	net.Interface
	v4, v6 bool
}

// devices returns the interfaces by which the clients of a listener with this address come.
func (m *Multicast) devices(local netip.Addr) (all []groupDevice, err error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("multicast: %w", err)
	}
	for _, one := range interfaces {
		if one.Flags&net.FlagUp == 0 || len(m.Interfaces) == 0 && one.Flags&net.FlagMulticast == 0 ||
			len(m.Interfaces) > 0 && !slices.Contains(m.Interfaces, one.Name) {
			continue
		}
		d := groupDevice{Interface: one}
		addresses, err := one.Addrs()
		if err != nil { // the interface went away
			continue
		}
		for _, a := range addresses {
			prefix, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ip, _ := netip.AddrFromSlice(prefix.IP)
			ip = ip.Unmap()
			d.v4 = d.v4 || ip.Is4() && (local == ip || local.IsUnspecified())
			d.v6 = d.v6 || ip.Is6() && (local.WithZone("") == ip || local.IsUnspecified() && local.Is6())
		}
		if d.v4 || d.v6 {
			all = append(all, d)
		}
	}
	return all, nil
}

// sessionOf returns the session of a peer, which it makes if there is none.
func (h *handler) sessionOf(p *engine.Peer) *session {
	s, ok := p.State.(*session)
	if !ok {
		s = &session{peer: p, core: &h.core}
		s.Owner, s.Peer = s, &s.Session
		p.State = s
		h.adopt(s)
	}
	return s
}
