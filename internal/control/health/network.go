package health

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// Network probes backends over the network. The zero value works; Close ends it.
type Network struct {
	// Source4 and Source6 are the outer sources of tunnels; invalid: those of the routes to the backends.
	Source4, Source6 netip.Addr
	Log              *slog.Logger // nil: silent

	mu      sync.Mutex
	tunnels *tunnels // nil before the first probe through one
}

// dial opens a connected socket to where the probe goes.
type dial func(ctx context.Context, network, address string) (net.Conn, error)

// Probe is the ProbeFunc of production. Safe from any goroutine until Close.
func (n *Network) Probe(ctx context.Context, p *Probe) error {
	var dialer net.Dialer
	if p.Tunnel != lb.NoTunnel {
		t, err := n.tunnel(p)
		if err != nil {
			return fmt.Errorf("probe through the tunnel to %s: %w", p.Through, err)
		}
		defer t.end()
		dialer.ControlContext = t.control
		return t.explain(probe(ctx, p, dialer.DialContext))
	}
	return probe(ctx, p, dialer.DialContext)
}

func probe(ctx context.Context, p *Probe, dial dial) error {
	switch h := &p.Health; h.Probe {
	case lb.ProbeTCP:
		return probeTCP(ctx, p.Address, dial)
	case lb.ProbeUDP:
		return probeUDP(ctx, p.Address, dial, h.Send, func([]byte) bool { return true })
	case lb.ProbeHTTP:
		return probeHTTP(ctx, h, p.Address, dial)
	case lb.ProbeCoAP:
		return probeCoAP(ctx, p.Address, dial)
	case lb.ProbeSTUN:
		return probeSTUN(ctx, p.Address, dial)
	default:
		return fmt.Errorf("no probe %v", h.Probe)
	}
}

func probeTCP(ctx context.Context, target netip.AddrPort, dial dial) error {
	conn, err := dial(ctx, "tcp", target.String())
	if err != nil {
		return err
	}
	return conn.Close()
}

// probeUDP sends a request and waits for an answer that passes the check; it ignores other answers. The socket is connected,
// so that only the backend can answer and an ICMP error ends the wait.
func probeUDP(ctx context.Context, target netip.AddrPort, dial dial, request []byte, check func([]byte) bool) error {
	conn, err := dial(ctx, "udp", target.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(request); err != nil {
		return err
	}
	answer := make([]byte, 2048)
	for {
		n, err := conn.Read(answer)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return errors.New("no answer in time")
			}
			return err
		}
		if check(answer[:n]) {
			return nil
		}
	}
}

// probeCoAP sends an empty confirmable message; RFC 7252 section 4.3 requires a Reset with the same id in answer.
func probeCoAP(ctx context.Context, target netip.AddrPort, dial dial) error {
	request := []byte{0x40, 0x00, 0, 0}
	rand.Read(request[2:])
	return probeUDP(ctx, target, dial, request, func(b []byte) bool {
		return len(b) == 4 && b[0] == 0x70 && b[1] == 0 && b[2] == request[2] && b[3] == request[3]
	})
}

// probeSTUN sends a Binding request (RFC 8489 section 6) and takes a success response to it.
func probeSTUN(ctx context.Context, target netip.AddrPort, dial dial) error {
	const magic = 0x2112a442
	request := make([]byte, 20)
	binary.BigEndian.PutUint16(request, 0x0001)
	binary.BigEndian.PutUint32(request[4:], magic)
	rand.Read(request[8:])
	return probeUDP(ctx, target, dial, request, func(b []byte) bool {
		return len(b) >= 20 && binary.BigEndian.Uint16(b) == 0x0101 && binary.BigEndian.Uint32(b[4:]) == magic &&
			string(b[8:20]) == string(request[8:])
	})
}

func probeHTTP(ctx context.Context, h *lb.Health, target netip.AddrPort, dial dial) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target.String()+h.Path, nil)
	if err != nil {
		return err
	}
	if h.Host != "" {
		request.Host = h.Host
	}
	request.Header.Set("User-Agent", "weir-health")
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: 16 << 10} // no proxy from the environment
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request) // a redirect is an answer, not followed
	if err != nil {
		return err
	}
	defer response.Body.Close()
	io.CopyN(io.Discard, response.Body, 4096)
	switch {
	case h.Status != 0 && response.StatusCode != h.Status:
		return fmt.Errorf("HTTP status %d, expected %d", response.StatusCode, h.Status)
	case h.Status == 0 && (response.StatusCode < 200 || response.StatusCode > 399):
		return fmt.Errorf("HTTP status %d", response.StatusCode)
	}
	return nil
}
