package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// GroupRequest asks the servers of a multicast group (RFC 7252 section 8). It goes over UDP, once, and is not confirmable.
type GroupRequest struct {
	URI string // coap://224.0.1.187 or coap://[ff02::fd%eth0]
	Request
	Interface string        // by which the request leaves; "": the zone of the address, or else the kernel's choice
	Hops      int           // of the request; default 1: it stays on the link
	Wait      time.Duration // for answers; servers spread them over their leisure, 5 s if they know no better
	Timeout   time.Duration // of the requests to one server that fetch the rest of its answer
	// Answered is called for each server, by one goroutine at a time; nil: no call.
	Answered func(*GroupAnswer)
}

// GroupAnswer is the answer of one server.
type GroupAnswer struct {
	Source  netip.AddrPort
	After   time.Duration   // from the request to the first message of the server
	Message message.Message // with the whole payload
	Err     error           // why the rest of the answer is not there; Message is then the first part
}

// Bounds of the answers of a group.
const (
	maxGroupAnswers = 4096 // servers; further ones are ignored
	groupFetches    = 16   // requests for the rest of an answer at a time
)

// IsGroup reports whether the host of the target is a multicast address.
func (t Target) IsGroup() bool {
	ip, err := netip.ParseAddr(t.Host)
	return err == nil && ip.IsMulticast()
}

// group is a GroupRequest under way.
type group struct {
	cfg   *GroupRequest
	token [8]byte
	start time.Time

	mu      sync.Mutex // held while Answered is called
	fetches sync.WaitGroup
	slots   chan struct{}
}

// AskGroup sends a request to a group and collects answers until the wait is over or ctx ends. Where a server sends only the first
// block of its answer, it gets the rest from that server alone (RFC 7959 section 2.8). It returns the number of servers that answered.
func AskGroup(ctx context.Context, cfg GroupRequest) (servers int, err error) {
	target, err := ParseTarget(cfg.URI)
	if err != nil {
		return 0, err
	}
	if !target.IsGroup() || target.Secure || target.Stream {
		return 0, fmt.Errorf("%s: multicast needs coap:// and a multicast address, such as coap://224.0.1.187 or coap://[ff02::fd%%eth0]", cfg.URI)
	}
	to, err := target.Resolve()
	if err != nil {
		return 0, err
	}
	g := &group{cfg: &cfg, slots: make(chan struct{}, groupFetches)}
	rand.Read(g.token[:]) //nolint:errcheck // never fails, by its contract
	datagram, err := build(message.Non, message.GET, g.token[:], cfg.options(target), nil)
	if err != nil {
		return 0, fmt.Errorf("request to %s: %w", cfg.URI, err)
	}
	var id [2]byte
	rand.Read(id[:]) //nolint:errcheck // never fails, by its contract
	datagram[2], datagram[3] = id[0], id[1]
	conn, err := g.open(to)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", cfg.URI, err)
	}
	defer conn.Close() //nolint:errcheck // everything was read
	g.start = time.Now()
	if _, err := conn.WriteToUDPAddrPort(datagram, to); err != nil {
		return 0, fmt.Errorf("%s: %w; name the interface with --interface, or as the zone of the address", cfg.URI, err)
	}
	if err := conn.SetReadDeadline(g.start.Add(cfg.Wait)); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	defer stop()
	servers, err = g.collect(ctx, conn, target)
	g.fetches.Wait()
	return servers, err
}

// open opens a socket that sends by the wanted interface.
func (g *group) open(to netip.AddrPort) (*net.UDPConn, error) {
	network, v4 := "udp6", to.Addr().Is4()
	if v4 {
		network = "udp4"
	}
	index := 0
	if name := g.cfg.Interface; name != "" {
		device, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("--interface: there is no interface %q", name)
		}
		index = device.Index
	}
	conn, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err == nil {
		failed := raw.Control(func(fd uintptr) { err = multicastOptions(int(fd), v4, index, max(1, g.cfg.Hops)) })
		err = errors.Join(err, failed)
	}
	if err != nil {
		conn.Close() //nolint:errcheck // the error that matters is err
		return nil, err
	}
	return conn, nil
}

// multicastOptions sets by which interface, and how far, multicast datagrams go.
func multicastOptions(fd int, v4 bool, index, hops int) error {
	if v4 {
		if index != 0 {
			if err := syscall.SetsockoptIPMreqn(fd, syscall.IPPROTO_IP, syscall.IP_MULTICAST_IF, &syscall.IPMreqn{Ifindex: int32(index)}); err != nil {
				return err
			}
		}
		return syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, syscall.IP_MULTICAST_TTL, hops)
	}
	if index != 0 {
		if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_MULTICAST_IF, index); err != nil {
			return err
		}
	}
	return syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_MULTICAST_HOPS, hops)
}

// collect reads answers until the deadline.
func (g *group) collect(ctx context.Context, conn *net.UDPConn, target Target) (servers int, err error) {
	seen := map[netip.AddrPort]bool{}
	buffer := make([]byte, 65535)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return servers, ctx.Err()
		case err != nil:
			return servers, err
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		answer := &GroupAnswer{Source: from, After: time.Since(g.start)}
		m := &answer.Message
		if message.Parse(append([]byte(nil), buffer[:n]...), m) != nil || !m.Code.IsResponse() || string(m.Token) != string(g.token[:]) ||
			m.Type == message.Ack || m.Type == message.Rst || seen[from] || len(seen) == maxGroupAnswers {
			continue
		}
		if m.Type == message.Con { // a server that wants to know whether it was received
			_, _ = conn.WriteToUDPAddrPort(message.AppendEmpty(nil, message.Ack, m.ID), from)
		}
		seen[from] = true
		servers++
		if block, ok := m.Uint(message.Block2); ok && block&8 != 0 {
			g.fetches.Go(func() { g.fetch(ctx, target, answer) })
			continue
		}
		g.report(answer)
	}
}

func (g *group) report(answer *GroupAnswer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cfg.Answered != nil {
		g.cfg.Answered(answer)
	}
}

// fetch gets the whole answer of one server.
func (g *group) fetch(ctx context.Context, target Target, answer *GroupAnswer) {
	g.slots <- struct{}{}
	defer func() { <-g.slots }()
	request := g.cfg.Request
	request.Path, request.Query = orElse(request.Path, target.Path), orElse(request.Query, target.Query)
	x, err := Do(ctx, RequestConfig{URI: "coap://" + answer.Source.String(), Request: request, Timeout: g.cfg.Timeout})
	var m message.Message
	if err == nil {
		err = message.Parse(x.Response, &m)
	}
	if err == nil {
		answer.Message = m
	}
	answer.Err = err
	g.report(answer)
}

func orElse(list, other []string) []string {
	if list == nil {
		return other
	}
	return list
}
