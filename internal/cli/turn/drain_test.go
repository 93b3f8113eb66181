package turn

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A gateway that is to end while it has 1,000 allocations is not ready any more and takes no new client, which it sends elsewhere
// if it knows where; what it has goes on and can be refreshed, also when the serving process is killed meanwhile; when the
// last allocation ends, it ends with code 0.
func TestTurnDrains(t *testing.T) {
	clitest.TakesSeconds(t)
	const allocations = 1000
	config, server := turnConfig(t)
	alternate := netlabtest.UDPAddress(t)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, append(text, "drain: {alternate: "+alternate.String()+"}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, os.Args[0], config, server)
	fs := newTurnFlows(t, server, allocations, 200*time.Millisecond)
	fs.goOn()
	if err := g.Admin.Get(t.Context(), "/readyz", nil, new(any)); err != nil && strings.Contains(err.Error(), "503") {
		t.Fatalf("not ready before the drain: %v", err)
	}

	g.Cmd.Process.Signal(syscall.SIGTERM)
	before := g.drains()
	if err := g.Admin.Get(t.Context(), "/readyz", nil, new(any)); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("ready while it drains: %v", err)
	}
	wantAlternate(t, server, alternate)
	fs.goOn()
	fs.refresh()
	if s := g.now(); s.Totals.Allocations != allocations {
		t.Fatalf("%d allocations while it drains, want %d", s.Totals.Allocations, allocations)
	}

	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	g.becomes(before)
	if s := g.drains(); s.Totals.Allocations != allocations {
		t.Errorf("%d allocations after a kill, want %d", s.Totals.Allocations, allocations)
	}
	wantAlternate(t, server, alternate)

	early := &turnFlows{t: t, flows: fs.flows[:allocations/2]}
	early.release()
	late := &turnFlows{t: t, flows: fs.flows[allocations/2:]}
	late.goOn()
	g.Alive()
	if s := g.now(); s.Totals.Allocations != allocations/2 {
		t.Errorf("%d allocations after half of them ended, want %d", s.Totals.Allocations, allocations/2)
	}
	t.Logf("drain: %v", late.gap())
	late.release()
	<-g.Ended
	if g.Err != nil {
		t.Errorf("the drained gateway ended with %v", g.Err)
	}
}

// Without a place to send them to, new clients are refused with 508; a drain that takes too long ends, with code 0, as does
// one that is cut short, and what is left is there at the next start.
func TestTurnDrainTimeout(t *testing.T) {
	config, server := turnConfig(t)
	state := t.TempDir() + "/state"
	g := startGateway(t, os.Args[0], config, server, "--state", state)
	fs := newTurnFlows(t, server, 1, flowInterval)
	fs.goOn()
	g.Cmd.Process.Signal(syscall.SIGTERM)
	g.drains()
	other := newTurnFlow(t, server)
	go other.receiveClient()
	defer other.client.Close()
	defer other.peer.Close()
	if answer, err := other.request(allocateRequest()); err == nil || !strings.Contains(err.Error(), "508") {
		t.Errorf("a new client while it drains: %v, %v; want 508", answer, err)
	}
	g.Cmd.Process.Signal(syscall.SIGTERM)
	<-g.Ended
	if g.Err != nil {
		t.Errorf("its drain cut short, it ended with %v", g.Err)
	}
	g = startGateway(t, os.Args[0], config, server, "--state", state, "--drain-timeout", "100ms")
	fs.goOn()
	g.Cmd.Process.Signal(syscall.SIGTERM)
	<-g.Ended
	if g.Err != nil {
		t.Errorf("after the time of a drain it ended with %v", g.Err)
	}
	startGateway(t, os.Args[0], config, server, "--state", state)
	fs.goOn()
}

// drains waits until the gateway drains.
func (g *turnGateway) drains() v1.TurnStatus {
	g.T.Helper()
	for {
		g.Alive()
		if s := g.now(); s.Draining {
			return s
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// wantAlternate checks that a new client is sent elsewhere (RFC 8489, section 10).
func wantAlternate(t *testing.T, server string, want netip.AddrPort) {
	t.Helper()
	f := newTurnFlow(t, server)
	go f.receiveClient()
	defer f.client.Close()
	defer f.peer.Close()
	answer, err := f.request(allocateRequest())
	var alternate stun.AlternateServer
	if err == nil || !strings.Contains(err.Error(), "error 300") {
		t.Errorf("a new client while it drains: %v, want 300", err)
	} else if err := alternate.GetFrom(answer); err != nil || fmt.Sprint(alternate.IP, ":", alternate.Port) != fmt.Sprint(want.Addr(), ":", want.Port()) {
		t.Errorf("sent to %v, %v; want %v", alternate, err, want)
	}
}
