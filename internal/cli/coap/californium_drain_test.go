package coap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	weir "github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// mixedClient has one session, and requests in it again and again.
type mixedClient struct {
	conn     *client.Conn
	id       string // its connection id
	made, at string // node ids
	answers  atomic.Uint64
	err      error
}

// request requests the context of the session.
func (c *mixedClient) request(ctx context.Context) error {
	x, err := c.conn.Do(ctx, &client.Request{Path: []string{"mycontext"}})
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := x.Print(&text); err != nil {
		return err
	}
	seen := fields(text.String())
	if c.id == "" {
		c.id, c.made = seen["read-cid"], seen["node-id"]
	}
	if c.at = seen["node-id"]; c.id == "" || c.at == "" || seen["read-cid"] != c.id {
		return fmt.Errorf("a session of node %s with the connection id %s has become: %s", c.made, c.id, text.String())
	}
	c.answers.Add(1)
	return nil
}

// Two nodes of Weir and one that is built on Californium's managed connector share a secured cluster behind weir lb, which queries Weir's
// nodes and has the id of the other one in its file. One of Weir's drains and is restarted: its sessions go to the other node of Weir, the sessions
// of the Californium node stay where they are, and no client makes a new session. Then no node is left that could take sessions of the
// last node of Weir: that drain is refused.
func TestMixedClusterDrains(t *testing.T) {
	clitest.TakesSeconds(t)
	buildCalifornium(t, 3)
	dir := t.TempDir()
	addresses := clitest.FreeAddresses(t, 7) // public and management of nodes 1 and 2 (Weir), of node 3 (Californium); of the balancer
	port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
	startJava(t, 3, "weir.Node", port(addresses[4]), port(addresses[5]), "3", "--group", addresses[1]+","+addresses[3], "6", testSecret, "mac")
	var nodes [2]*clitest.Process
	start := func(i int) {
		nodes[i] = clitest.Start(t, fmt.Sprintf("node %d", i+1), "coap", "server", "--workers", "1", "--drain-timeout", "1m",
			"--dtls-cluster", fmt.Sprintf("%s;%s;%d", addresses[2*i], addresses[2*i+1], i+1), "--dtls-cluster-group", addresses[3-2*i]+","+addresses[5], "--dtls-cluster-group-security", testSecret)
		name := filepath.Join(dir, fmt.Sprint(i))
		clitest.Must(t, errors.Join(os.RemoveAll(name), os.Symlink(nodes[i].Socket, name)))
	}
	for i := range nodes {
		start(i)
	}
	for _, p := range nodes {
		awaitNodesUp(p)
	}
	config := filepath.Join(dir, "weir.yaml")
	clitest.Must(t, os.WriteFile(config, fmt.Appendf(nil, `services:
- name: coaps
  vips: [{address: 127.0.0.1, protocol: udp, port: %s}]
  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}
  cluster: {every: 100ms}
  backends:
  - {name: one, address: 127.0.0.1, port: %s, admin: "unix:%[5]s/0"}
  - {name: two, address: 127.0.0.1, port: %[3]s, admin: "unix:%[5]s/1"}
  - {name: three, address: 127.0.0.1, port: %[4]s, nodes: [3]}
`, port(addresses[6]), port(addresses[0]), port(addresses[2]), port(addresses[4]), dir), 0o600))
	balancer := weir.New("unix:"+clitest.Start(t, "lb", "lb", "run", "-c", config, "--datapath", "udp").Socket, "")
	owns := func(what, one, two string) {
		t.Helper()
		netlabtest.Eventually(t, what, func() bool {
			status, err := balancer.LBStatus(t.Context())
			if err != nil || len(status.Services) != 1 {
				return false
			}
			ids := map[string]string{}
			for _, b := range status.Services[0].Backends {
				ids[b.Name] = fmt.Sprint(b.Nodes)
			}
			return ids["one"] == one && ids["two"] == two && ids["three"] == "[3]"
		})
	}
	owns("the nodes' ids", "[1]", "[2]")

	ctx, cancel := context.WithCancel(t.Context())
	clients, group := mixedLoad(ctx, t, addresses[6])
	goOn := func() { // until each client has had answers since
		t.Helper()
		before := make([]uint64, len(clients))
		for i, c := range clients {
			before[i] = c.answers.Load()
		}
		for i, c := range clients {
			netlabtest.Eventually(t, "answers", func() bool { return c.answers.Load() > before[i]+5 })
		}
	}
	goOn()
	netlabtest.Eventually(t, "node 1 takes part", func() bool {
		_, err := nodes[0].Admin.DrainCoAP(t.Context(), nil)
		return err == nil
	})
	owns("the shard is at node 2", "[]", "[1 2]")
	goOn()
	clitest.Must(t, nodes[0].Cmd.Process.Signal(syscall.SIGTERM))
	<-nodes[0].Ended
	goOn()
	if _, err := nodes[1].Admin.DrainCoAP(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no other node takes sessions") {
		t.Errorf("the last node of Weir is drained: %v", err)
	}
	goOn()
	start(0)
	owns("the shard is back", "[1]", "[2]")
	goOn()
	cancel()
	group.Wait()
	made := map[string]int{}
	for i, c := range clients {
		made[c.made]++
		if c.err != nil || c.at != c.made {
			t.Errorf("client %d of node %s, now at %s, after %d answers: %v", i, c.made, c.at, c.answers.Load(), c.err)
		}
	}
	if made["1"] == 0 || made["2"] == 0 || made["3"] == 0 {
		t.Errorf("sessions by node: %v", made)
	}
	for i, p := range nodes {
		s := nodeStatus(p)
		if s.Moves.Lost+s.Moves.Refused+s.Engine.BadMACs+s.Cluster.BadForward+s.Cluster.Malformed > 0 {
			t.Errorf("node %d: %+v, %+v", i+1, *s.Moves, *s.Cluster)
		}
	}
}

// mixedLoad makes sessions through the balancer until each of the three nodes has some, and has them request until ctx ends.
func mixedLoad(ctx context.Context, t *testing.T, address string) (clients []*mixedClient, group *sync.WaitGroup) {
	t.Helper()
	group = &sync.WaitGroup{}
	seen := map[string]int{}
	for len(clients) < 12 || len(seen) < 3 {
		if len(clients) == 100 {
			t.Fatalf("100 sessions are at %v", seen)
		}
		conn, err := client.Dial(t.Context(), "coaps://"+address, client.DialConfig{Security: client.Security{Identity: "cali.cluster", Secret: []byte(".fornium")}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		c := &mixedClient{conn: conn}
		if err := c.request(t.Context()); err != nil {
			t.Fatal(err)
		}
		seen[c.made]++
		clients = append(clients, c)
	}
	for _, c := range clients {
		group.Go(func() {
			for tick := time.NewTicker(50 * time.Millisecond); ; {
				if err := c.request(ctx); err != nil {
					if ctx.Err() == nil {
						c.err = err
					}
					return
				}
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	return clients, group
}
