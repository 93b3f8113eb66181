package coap

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// securedNode runs a node of a secured cluster; addresses are those of all nodes.
func securedNode(t *testing.T, addresses []string, i int, args ...string) *clitest.Process {
	t.Helper()
	all := []string{"coap", "server", "--workers", "2", "--dtls-cluster", clitest.ClusterArgs(addresses, i), "--dtls-cluster-group-security", testSecret}
	return clitest.Start(t, fmt.Sprintf("node %d", i+1), append(all, args...)...)
}

// moves is how the sessions of a node move.
func moves(p *clitest.Process) cluster.MoveStatus {
	p.T.Helper()
	m := nodeStatus(p).Moves
	if m == nil {
		p.T.Fatalf("%s moves no sessions", p.Name)
	}
	return *m
}

// nodeOf returns the node that a session is at, and the one of its connection id.
func nodeOf(t *testing.T, c *client.Conn) (at, made string) {
	t.Helper()
	x, err := c.Do(t.Context(), &client.Request{Path: []string{"mycontext"}})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := x.Print(&text); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if id, ok := strings.CutPrefix(line, "node-id: "); ok {
			at = strings.TrimSpace(id)
		}
		if id, ok := strings.CutPrefix(line, "read-cid: "); ok {
			made = id[:2]
		}
	}
	return at, made
}

// followOwners are the owners of shard 1 as a node reports them; the channel closes when it ends.
func followOwners(p *clitest.Process) <-chan uint8 {
	owners := make(chan uint8, 1000)
	go func() {
		defer close(owners)
		p.Admin.CoAPOwners(p.T.Context(), func(line *v1.CoAPOwners) error {
			for _, o := range line.Nodes[0].Owners {
				if o.Shard == 1 && len(owners) < cap(owners) {
					owners <- o.Owner
				}
			}
			return nil
		})
	}()
	return owners
}

// A session moves to another node and back, without a handshake, while its client goes on to send to the first node.
func TestClusterDrain(t *testing.T) {
	clitest.TakesSeconds(t)
	addresses := clitest.FreeAddresses(t, 4)
	one, two := securedNode(t, addresses, 0), securedNode(t, addresses, 1)
	awaitNodesUp(one)
	awaitNodesUp(two)
	netlabtest.Eventually(t, "node 1 takes part", func() bool { return moves(one).Owners == nil && nodeStatus(one).Nodes[1].Secured })
	c, err := client.Dial(t.Context(), "coaps://"+addresses[0], client.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if at, made := nodeOf(t, c); at != "1" || made != "01" {
		t.Fatalf("the session is at node %s, its connection id of node %s", at, made)
	}
	states := followOwners(two)
	var drained error
	netlabtest.Eventually(t, "node 1 is drained", func() bool { // not before the other node has announced itself
		done, err := one.Admin.DrainCoAP(t.Context(), new(uint32(2)))
		if drained = err; err == nil && (done.Moved != 1 || done.Lost != 0 || done.Left != 0) {
			t.Errorf("drained: %+v", done)
		}
		return err == nil
	})
	if drained != nil {
		t.Fatal(drained)
	}
	if err := one.Admin.Get(t.Context(), "/readyz", nil, nil); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("ready while it drains: %v", err)
	}
	if at, made := nodeOf(t, c); at != "2" || made != "01" {
		t.Errorf("after the drain the session is at node %s, its connection id of node %s", at, made)
	}
	if got := moves(two).Owners; !slices.Contains(got, cluster.OwnerStatus{Shard: 1, Owner: 2, Version: 1}) {
		t.Errorf("owners, as node 2 knows them: %v", got)
	}
	if _, err := two.Admin.DrainCoAP(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no other node takes sessions") {
		t.Errorf("the last node is drained: %v", err)
	}
	if _, err := one.Admin.UndrainCoAP(t.Context()); err != nil {
		t.Fatal(err)
	}
	netlabtest.Eventually(t, "the session is back", func() bool { return moves(one).Sessions == 1 && len(moves(one).Owners) == 1 })
	for _, want := range []uint8{2, 1} { // a line at each change, and repeated ones
		at, goes := <-states, true
		for at != want && goes {
			at, goes = <-states
		}
		if !goes {
			t.Fatalf("node 2 did not report that node %d owns the shard", want)
		}
	}
	if at, _ := nodeOf(t, c); at != "1" {
		t.Errorf("after all the session is at node %s", at)
	}
	for _, p := range []*clitest.Process{one, two} {
		if s := nodeStatus(p); s.Engine.BadMACs+s.Engine.Replays+s.Cluster.BadForward+s.Cluster.Malformed > 0 || s.Moves.Lost+s.Moves.Refused > 0 {
			t.Errorf("%s: %+v, %+v", p.Name, *s.Cluster, *s.Moves)
		}
	}
	if n := nodeStatus(one).Engine.Handshakes + nodeStatus(two).Engine.Handshakes; n != 1 {
		t.Errorf("%d handshakes", n)
	}
}

// A drain is refused where the keys of sessions would travel in clear, and where there is no other node.
func TestClusterDrainRefused(t *testing.T) {
	clitest.TakesSeconds(t)
	addresses := clitest.FreeAddresses(t, 3)
	for want, p := range map[string]*clitest.Process{
		"the link between the nodes is not secured": clitest.Start(t, "unsecured", "coap", "server", "--dtls-cluster", addresses[0]+";"+addresses[1]+";1"),
		"no node of a cluster":                      clitest.Start(t, "alone", "coap", "server", "--dtls-only", "--dtls", addresses[2]),
	} {
		if _, err := p.Admin.DrainCoAP(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", p.Name, err, want)
		}
		if err := p.Admin.Post(t.Context(), "/drain", map[string][]string{"to": {"300"}}, nil); err == nil || !strings.Contains(err.Error(), "want 0 to 255") {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

// Three nodes behind a NAT are restarted by SIGTERM, one after the other, under load: no request and no session is lost, and no client
// makes a new one. Either an operator takes the destinations out and in, or the NAT follows the cluster and steers by connection id.
func TestClusterRollingRestart(t *testing.T) {
	clitest.TakesSeconds(t)
	t.Run("console", func(t *testing.T) { t.Parallel(); rollingRestart(t, false) })
	t.Run("following", func(t *testing.T) { t.Parallel(); rollingRestart(t, true) })
}

func rollingRestart(t *testing.T, following bool) {
	const clients = 60
	admin := t.TempDir()
	addresses := clitest.FreeAddresses(t, 7)
	var nodes [3]*clitest.Process
	start := func(i int) {
		nodes[i] = securedNode(t, addresses[:6], i, "--drain-timeout", "1m")
		name := filepath.Join(admin, strconv.Itoa(i)) // the same one for every process of the node
		if err := errors.Join(os.RemoveAll(name), os.Symlink(nodes[i].Socket, name)); err != nil {
			t.Fatal(err)
		}
	}
	console := func(line string) {}
	public := []string{addresses[0], addresses[2], addresses[4]}
	for i := range nodes {
		start(i)
	}
	for _, p := range nodes {
		awaitNodesUp(p)
	}
	args := append([]string{"nat", addresses[6], "--"}, public...)
	if following {
		args = append(args, "--cid-length", "6", "--cluster", "unix:"+admin+"/0,unix:"+admin+"/1,unix:"+admin+"/2")
	}
	nat := clitest.Start(t, "nat", args...)
	if !following {
		console = func(line string) { nat.Console(line) }
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	progress, done := make(chan uint64, 1), make(chan client.BenchResult, 1)
	go func() {
		defer close(progress)
		result, err := client.Bench(ctx, client.BenchConfig{
			URI: "coaps://" + addresses[6] + "/benchmark?rlen=40", Clients: clients, Requests: 1 << 30, NoStop: true, Pause: 50 * time.Millisecond, LiveEvery: 50 * time.Millisecond,
		}, func(s client.Snapshot) {
			select {
			case progress <- s.Total.Requests:
			default:
			}
		})
		if err != nil {
			t.Error(err)
		}
		done <- result
	}()
	goOn := func() { // until each client has had answers since
		for first := <-progress; ; {
			n, ok := <-progress
			if !ok {
				t.Fatal("the load has ended")
			}
			if n > first+10*clients {
				return
			}
		}
	}
	goOn()
	var moved, lost uint64
	for i, p := range nodes {
		owned := moves(p).Sessions
		if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		netlabtest.Eventually(t, "the node is not ready", func() bool {
			err := p.Admin.Get(t.Context(), "/readyz", nil, nil)
			return err != nil && strings.Contains(err.Error(), http.StatusText(http.StatusServiceUnavailable))
		})
		console("remove " + public[i])
		netlabtest.Eventually(t, "the sessions have moved", func() bool {
			m := moves(p)
			moved, lost = m.Out, m.Lost
			return m.Drained
		})
		if moved == 0 || lost > 0 {
			t.Errorf("node %d: %d sessions have moved, %d are lost", i+1, moved, lost)
		}
		<-p.Ended
		if p.Err != nil && !errors.Is(p.Err, context.Canceled) {
			t.Errorf("node %d: %v", i+1, p.Err)
		}
		start(i)
		netlabtest.Eventually(t, "the sessions are back", func() bool { return moves(nodes[i]).Sessions >= owned })
		console("add " + public[i])
		goOn()
	}
	cancel()
	for range progress {
		continue
	}
	result := <-done
	if s := result.Stats; s.Lost+s.LostSessions+s.Rehandshakes+s.Errors+s.HandshakeErrors+s.Failed > 0 || s.Handshakes != clients {
		t.Errorf("load: %+v", s)
	}
	handshakes := uint64(0)
	for i, p := range nodes {
		p.Alive()
		s := nodeStatus(p)
		handshakes += s.Engine.Handshakes // of the processes of now: none
		if s.Moves.Lost+s.Moves.Refused > 0 || s.Engine.BadMACs > 0 {
			t.Errorf("node %d: %+v, %d bad MACs", i+1, *s.Moves, s.Engine.BadMACs)
		}
	}
	if handshakes > 0 {
		t.Errorf("%d handshakes after the restarts", handshakes)
	}
	if following {
		netlabtest.Eventually(t, "every destination is up and has the id of its node", func() bool {
			var status v1.NATStatus
			nat.Status(&status)
			return !slices.ContainsFunc(status.Services[0].Backends, func(b v1.BackendStatus) bool {
				return b.State != "up" || !slices.Equal(b.Nodes, []uint32{uint32(slices.Index(public, b.Name) + 1)})
			})
		})
	}
	t.Logf("%d requests, %d retransmissions, longest wait %v", result.Stats.Requests, result.Stats.Retransmissions, result.RTT.Max())
}
