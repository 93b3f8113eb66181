package coap

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/node"
)

// nodeStatus is the status of a node's listener.
func nodeStatus(p *clitest.Process) node.ListenerStatus {
	p.T.Helper()
	var status node.Status
	p.Status(&status)
	if len(status.Listeners) != 1 || status.Listeners[0].Cluster == nil {
		p.T.Fatalf("%s has %d listeners", p.Name, len(status.Listeners))
	}
	return status.Listeners[0]
}

// awaitNodesUp waits until p has received pings of all nodes of its cluster, which takes a few pings at most.
func awaitNodesUp(p *clitest.Process) {
	p.T.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; {
		silent := 0
		for _, n := range nodeStatus(p).Nodes {
			if n.State != cluster.Self && n.State != cluster.Up {
				silent++
			}
		}
		if silent == 0 {
			return
		}
		if time.Now().After(deadline) {
			p.T.Errorf("%s has not received a ping of %d of its nodes", p.Name, silent)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// startCluster runs three nodes, a process each, and a NAT in front.
func startCluster(t *testing.T, nodeArgs, natArgs []string) (nodes []*clitest.Process, public []string, nat *clitest.Process, vip string) {
	t.Helper()
	addresses := clitest.FreeAddresses(t, 7)
	vip = addresses[6]
	for i := range 3 {
		args := append([]string{"coap", "server", "--workers", "1", "--dtls-cluster", clitest.ClusterArgs(addresses[:6], i)}, nodeArgs...)
		nodes = append(nodes, clitest.Start(t, fmt.Sprintf("node %d", i+1), args...))
		public = append(public, addresses[2*i])
	}
	args := append([]string{"nat", vip, "--"}, public...)
	nat = clitest.Start(t, "nat", append(args, natArgs...)...)
	return nodes, public, nat, vip
}

// Real processes: every client's address changes, two thirds of the records land on a wrong node, a node is drained and comes
// back; no request and no session is lost, and no handshake repeated. Replies return through the router, or directly with a NAT
// that follows them.
func TestClusterKeepsSessions(t *testing.T) {
	clitest.TakesSeconds(t)
	for _, test := range []struct {
		name              string
		nodeArgs, natArgs []string
		backward          bool
	}{
		{"backward", nil, nil, true},
		{"direct", []string{"--no-dtls-cluster-backward"}, []string{"--reverse"}, false},
		{"secured", []string{"--dtls-cluster-group-security", "the secret of the cluster", "--workers", "2"}, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			nodes, public, nat, vip := startCluster(t, test.nodeArgs, test.natArgs)
			for _, p := range nodes {
				awaitNodesUp(p) // before that a secured link forwards nothing
			}
			const clients = 60
			steps := []string{"clear", "rebalance", "clear", "remove " + public[1], "add " + public[1], "rebalance", "clear"}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			step := 0
			var last client.BenchStats
			result, err := client.Bench(ctx, client.BenchConfig{
				URI: "coaps://" + vip + "/benchmark?rlen=40", Clients: clients, Requests: 1 << 30, NoStop: true, Pause: 10 * time.Millisecond, LiveEvery: 300 * time.Millisecond,
			}, func(s client.Snapshot) {
				last = s.Total
				switch {
				case s.Interval.Requests == 0: // the load has not got over the latest step yet
				case step < len(steps):
					nat.Console(steps[step])
					step++
				default:
					cancel()
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			s := result.Stats
			if s.Lost != 0 || s.LostSessions != 0 || s.Rehandshakes != 0 || s.HandshakeErrors != 0 || s.Handshakes != clients || s.Failed != 0 {
				t.Errorf("load: %+v", s)
			}
			if last.Clients != clients {
				t.Errorf("%d of %d clients had a session at the end", last.Clients, clients)
			}
			var handshakes, forwarded, processed, backwarded, sent, segmented uint64
			for i, p := range nodes {
				p.Alive()
				status := nodeStatus(p)
				handshakes += status.Engine.Handshakes
				forwarded += status.Cluster.Forwarded
				processed += status.Cluster.ProcessedForwarded
				backwarded += status.Cluster.Backwarded
				sent += status.Cluster.SentBackwarded
				segmented += status.Engine.LinkSegmented
				if status.Cluster.Strangers+status.Cluster.Malformed+status.Cluster.DroppedForward+status.Cluster.DroppedBackward+status.Cluster.BadForward+status.Cluster.BadBackward+status.Engine.BadMACs != 0 {
					t.Errorf("node %d: %+v", i+1, *status.Cluster)
				}
				awaitNodesUp(p)
			}
			if handshakes != clients {
				t.Errorf("the nodes saw %d handshakes of %d clients", handshakes, clients)
			}
			if forwarded == 0 || processed == 0 || (backwarded > 0) != test.backward || (sent > 0) != test.backward || test.backward && segmented == 0 {
				t.Errorf("%d forwarded, %d processed, %d backwarded, %d sent for others, %d sends of several frames", forwarded, processed, backwarded, sent, segmented)
			}
			t.Logf("%d requests, %d forwarded, %d backwarded, %d sends of several frames, %d retransmissions", s.Requests, forwarded, backwarded, segmented, s.Retransmissions)
		})
	}
}

// With direct replies and a NAT that follows them, a client that comes from another address, and lands on a wrong node, is forwarded
// once; what it sends from then on goes to the owner of its session.
func TestDirectRepliesMoveTheNAT(t *testing.T) {
	clitest.TakesSeconds(t)
	nodes, _, nat, vip := startCluster(t, []string{"--no-dtls-cluster-backward"}, []string{"--reverse"})
	forwarded := func() (sum uint64) {
		for _, p := range nodes {
			sum += nodeStatus(p).Cluster.Forwarded
		}
		return sum
	}
	const clients, phases = 30, 4
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	phase, begun, last := 0, client.BenchStats{}, uint64(0)
	var each []uint64 // forwarded in each phase
	result, err := client.Bench(ctx, client.BenchConfig{
		URI: "coaps://" + vip + "/benchmark?rlen=40", Clients: clients, Requests: 1 << 30, NoStop: true, Pause: 10 * time.Millisecond, LiveEvery: 300 * time.Millisecond,
	}, func(s client.Snapshot) {
		now := forwarded()
		if s.Interval.Requests < clients || now != last || s.Total.Requests-begun.Requests < 20*clients {
			if phase > 0 {
				each[phase-1] += now - last
			}
			last = now
			return // clients still move
		}
		if phase == phases {
			cancel()
			return
		}
		nat.Console("clear") // every client has another address for the nodes, and perhaps another node
		phase, begun = phase+1, s.Total
		each = append(each, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := result.Stats; s.Lost != 0 || s.LostSessions != 0 || s.Rehandshakes != 0 || s.Handshakes != clients || s.Failed != 0 {
		t.Errorf("load: %+v", s)
	}
	var all uint64
	for i, n := range each {
		all += n
		if n > clients+clients/2 { // some repeat their request meanwhile
			t.Errorf("phase %d: %d records of %d clients were forwarded", i, n, clients)
		}
	}
	if len(each) != phases || all == 0 {
		t.Errorf("forwarded in each phase: %v", each)
	}
	var status v1.NATStatus
	nat.Status(&status)
	if moved, sum := status.NAT.Counters.Moved, forwarded(); moved == 0 || moved > sum { // some while the clients began
		t.Errorf("%d flows moved, %d records forwarded", moved, sum)
	}
	t.Logf("%d requests, forwarded in each phase: %v, in all %d, %d flows moved", result.Stats.Requests, each, forwarded(), status.NAT.Counters.Moved)
}

// A session shows the node that owns it, in the resource and in its connection id.
func TestClusterShowsTheOwner(t *testing.T) {
	addresses := clitest.FreeAddresses(t, 4)
	one := clitest.Start(t, "node 1", "coap", "server", "--workers", "1", "--dtls-cluster", clitest.ClusterArgs(addresses, 0))
	clitest.Start(t, "node 2", "coap", "server", "--workers", "1", "--dtls-cluster", clitest.ClusterArgs(addresses, 1))
	x, err := client.Do(t.Context(), client.RequestConfig{URI: "coaps://" + addresses[0] + "/mycontext"})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := x.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"node-id: 1\n", "read-cid: 01", "cipher-suite: TLS_PSK_WITH_AES_128_CCM_8\n", "peer: cali."} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	one.Alive()
}
