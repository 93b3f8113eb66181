package turn

import (
	"context"
	"net/netip"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/turn/load"
	"github.com/weir-lb/weir/internal/turn/load/loadtest"
)

// A million Allocates without credentials, from ten thousand addresses: the answers are fewer than the gateway's
// limit lets through and never amplify, its memory does not grow, and clients with credentials are served all the while,
// old ones and twenty that come in the midst.
func TestAllocateFloodLosesNoProvenClient(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	server := netlabtest.UDPAddress(t)
	gateway := clitest.Start(t, "gateway", "turn", "gateway", "turn://user1:passwd1@"+server.String(), "--peers", "127.0.0.0/8", "--no-supervisor")
	config := load.Config{Server: server, User: "user1", Password: "passwd1", Clients: 5, Size: 100}
	clients, err := load.Open(t.Context(), config)
	clitest.Must(t, err)
	defer clients.Close()
	usage := func() procstat.Usage {
		u, err := procstat.Of(gateway.Cmd.Process.Pid)
		clitest.Must(t, err)
		return u
	}
	flood := loadtest.Flood{Server: server, Count: 10_000}
	for i := range 10_000 {
		flood.Sources = append(flood.Sources, netip.AddrFrom4([4]byte{127, 9, byte(i >> 8), byte(i)}))
	}
	_, err = flood.Run(t.Context()) // tables that are there from now on
	clitest.Must(t, err)
	before := usage()

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	type outcome struct {
		report *load.Report
		err    error
	}
	relayed := make(chan outcome, 1)
	go func() {
		report, err := clients.Run(ctx, load.Phase{Rate: 500, Direction: load.Both})
		relayed <- outcome{report, err}
	}()
	newcomer := make(chan error, 1)
	flood.Count = 150_000
	go func() {
		late := config
		late.Clients = 20
		l, err := load.Open(ctx, late)
		if err == nil {
			err = l.Close()
		}
		newcomer <- err
	}()
	got, err := flood.Run(t.Context())
	clitest.Must(t, err)
	if err := <-newcomer; err != nil {
		t.Errorf("clients that came during the flood: %v", err)
	}
	stop()
	end := <-relayed
	clitest.Must(t, end.err)
	after := usage()

	t.Logf("%d requests in %v: %d answers, largest %.2f of its request; resident %d to %d KiB; relayed up %d of %d, down %d of %d",
		got.Sent, got.Elapsed, got.Answered, got.Largest, before.ResidentBytes>>10, after.ResidentBytes>>10,
		end.report.Up.Sum.Received, end.report.Up.Sum.Sent, end.report.Down.Sum.Received, end.report.Down.Sum.Sent)
	const perSource, inAll = 100, 50_000 // a second, the defaults
	seconds := got.Elapsed.Seconds() + 1
	if most := min(perSource*10_000, inAll) * seconds; float64(got.Answered) > most {
		t.Errorf("%d answers in %.1f s: over the limit of %.0f", got.Answered, seconds, most)
	}
	if got.Largest > 3 {
		t.Errorf("an answer has %.2f times the bytes of its request: want at most 3", got.Largest)
	}
	for code := range got.Codes {
		if code != 401 {
			t.Errorf("answers with code %d: want 401 alone", code)
		}
	}
	if grown := int64(after.ResidentBytes) - int64(before.ResidentBytes); grown > 16<<20 {
		t.Errorf("the gateway grew by %d KiB", grown>>10)
	}
	for _, flow := range []load.Flow{end.report.Up, end.report.Down} {
		for _, c := range flow.Connections {
			if c.Received == 0 {
				t.Errorf("client %d received nothing of %d datagrams during the flood", c.ID, c.Sent)
			}
		}
	}
	if alive, err := clients.Refresh(t.Context()); alive != 5 || err != nil {
		t.Errorf("after the flood the gateway knows %d of 5 clients: %v", alive, err)
	}
}
