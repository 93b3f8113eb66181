package lb

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// nodeAPI is the admin API of a cluster node, which answers what the test wants.
type nodeAPI struct {
	t      *testing.T
	socket string
	status atomic.Pointer[v1.CoAPStatus] // nil: it does not serve
}

func newNodeAPI(t *testing.T, dir, name string, id uint32) *nodeAPI {
	t.Helper()
	n := &nodeAPI{t: t, socket: filepath.Join(dir, name)}
	l, err := net.Listen("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := n.status.Load()
		w.Header().Set(v1.PartHeader, "coap")
		if r.URL.Path != "/status" { // as a node that cannot be followed: it is queried
			http.NotFound(w, r)
			return
		}
		if status == nil {
			http.Error(w, "gone", http.StatusServiceUnavailable)
			return
		}
		json.NewEncoder(w).Encode(status)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	n.is(id, false)
	return n
}

// is has the node report its id, whether it drains, and the owners.
func (n *nodeAPI) is(id uint32, draining bool, owners ...v1.CoAPOwner) {
	n.status.Store(&v1.CoAPStatus{Listeners: []v1.CoAPListener{{NodeID: &id, Cluster: &v1.CoAPCluster{}, Moves: &v1.CoAPMoves{Draining: draining, Owners: owners}}}})
}

func (n *nodeAPI) gone() { n.status.Store(nil) }

// followed is a weir lb run that follows two nodes, and clients of it.
type followed struct {
	t          *testing.T
	a, b       *nodeAPI
	admin      string       // of the balancer
	host       *netlab.Host // of the clients; nil: here
	vip        string
	connection []net.Conn
}

// clusterSpec is a file with one service that follows nodes a and b.
func clusterSpec(dir, mode, vip, a, b string) string {
	host, port, _ := net.SplitHostPort(vip)
	return fmt.Sprintf(`hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
limits: {flows: 4096}
services:
- name: coaps
  mode: %s
  vips: [{address: %s, protocol: udp, port: %s}]
  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}
  cluster: {every: 100ms, old_after: 1s}
  backends:
  - {name: a, %s, admin: "unix:%s/a"}
  - {name: b, %s, admin: "unix:%s/b"}
`, mode, host, port, a, dir, b, dir)
}

func newFollowed(t *testing.T) (*followed, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &followed{t: t, a: newNodeAPI(t, dir, "a", 1), b: newNodeAPI(t, dir, "b", 2)}, dir
}

// open makes clients, each with a flow of its own.
func (f *followed) open() {
	f.t.Helper()
	dial := func() error {
		conn, err := net.Dial("udp4", f.vip)
		if err == nil {
			f.t.Cleanup(func() { conn.Close() })
			f.connection = append(f.connection, conn)
		}
		return err
	}
	for range 8 {
		if f.host != nil {
			clitest.Must(f.t, f.host.Do(dial))
			continue
		}
		clitest.Must(f.t, dial())
	}
}

// reach sends a record with a connection id of a node from each client, and wants the answers of a backend.
func (f *followed) reach(id byte, want string) {
	f.t.Helper()
	record := append([]byte{25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 1, id, 1, 2, 3, 4, 5, 0, 8}, "12345678"...) // RFC 9146 section 4
	b := make([]byte, 2048)
	for i, conn := range f.connection {
		name := ""
		for range 30 {
			if _, err := conn.Write(record); err != nil {
				continue
			}
			conn.SetReadDeadline(time.Now().Add(time.Second))
			if n, err := conn.Read(b); err == nil {
				name, _, _ = strings.Cut(string(b[:n]), " ")
				break
			}
		}
		if name != want {
			f.t.Errorf("client %d: a record of node %d reached %q, want %q", i, id, name, want)
		}
	}
}

// becomes waits until the balancer has these owner ids and states, and returns its status.
func (f *followed) becomes(what string, a, b []uint32, stateA string, old bool) {
	f.t.Helper()
	balancer := client.New(f.admin, "")
	netlabtest.Eventually(f.t, what, func() bool {
		status, err := balancer.LBStatus(f.t.Context())
		if err != nil || len(status.Services) != 1 || status.Services[0].Cluster == nil {
			return false
		}
		s := &status.Services[0]
		return slices.Equal(s.Backends[0].Nodes, a) && slices.Equal(s.Backends[1].Nodes, b) && s.Backends[0].State == stateA && s.Cluster.Old == old
	})
}

// run moves the shard of node 1 away and back, with nodes that end and return.
func (f *followed) run() {
	f.t.Helper()
	f.open()
	f.becomes("the nodes' own ids", []uint32{1}, []uint32{2}, "up", false)
	f.reach(1, "a")
	f.reach(2, "b")
	f.reach(1, "a") // the same flow to the other owner, and back
	moved := v1.CoAPOwner{Shard: 1, Owner: 2, Version: 1}
	f.a.is(1, true, moved)
	f.becomes("the move", nil, []uint32{1, 2}, "draining", false)
	f.reach(1, "b")
	f.a.gone()
	f.becomes("the end of node 1", nil, []uint32{1, 2}, "down", false)
	f.b.gone()
	f.becomes("the old view", nil, []uint32{1, 2}, "down", true)
	f.reach(1, "b")
	f.reach(2, "b")
	if out, code := clitest.Weir(f.t, "lb", "status", "--admin", f.admin); code != 1 || !strings.Contains(out, "OLD, no node has answered") || !strings.Contains(out, "down by cluster") || !strings.Contains(out, "b does not answer") {
		f.t.Errorf("lb status: %d\n%s", code, out)
	}
	f.b.is(2, false, moved)
	f.a.is(1, false)
	f.becomes("node 1 is back, without its shard", nil, []uint32{1, 2}, "up", false)
	f.b.is(2, false, v1.CoAPOwner{Shard: 1, Owner: 1, Version: 2})
	f.becomes("the return", []uint32{1}, []uint32{2}, "up", false)
	f.reach(1, "a")
	f.reach(2, "b")
	if out, code := clitest.Weir(f.t, "lb", "status", "--admin", f.admin); code != 0 || !strings.Contains(out, "2 of 2 nodes answer") {
		f.t.Errorf("lb status: %d\n%s", code, out)
	}
}

func TestLBFollowsACluster(t *testing.T) {
	clitest.TakesSeconds(t)
	f, dir := newFollowed(t)
	f.vip = clitest.FreeAddresses(t, 1)[0]
	path := filepath.Join(dir, "weir.yaml")
	config := clusterSpec(dir, "nat", f.vip, fmt.Sprintf("address: 127.0.0.1, port: %d", namedEcho(t, "a")), fmt.Sprintf("address: 127.0.0.1, port: %d", namedEcho(t, "b")))
	clitest.Must(t, os.WriteFile(path, []byte(config), 0o600))
	f.admin = "unix:" + clitest.Start(t, "lb", "lb", "run", "-c", path, "--datapath", "udp").Socket
	f.run()
}

// remembers has the balancer start again while no node answers: its first generation steers as the last one did.
func (f *followed) remembers(restart func()) {
	f.t.Helper()
	moved := v1.CoAPOwner{Shard: 1, Owner: 2, Version: 9}
	f.a.is(1, true, moved)
	f.b.is(2, false, moved)
	f.becomes("the move", nil, []uint32{1, 2}, "draining", false)
	f.a.gone()
	f.becomes("the end of node 1", nil, []uint32{1, 2}, "down", false)
	f.b.gone()
	restart()
	f.reach(1, "b")
	f.reach(2, "b")
	status, err := client.New(f.admin, "").LBStatus(f.t.Context())
	if err != nil || status.Generation != 1 || !slices.Equal(status.Services[0].Backends[1].Nodes, []uint32{1, 2}) {
		f.t.Errorf("%+v, %v", status, err)
	}
	f.a.is(1, false)
	f.b.is(2, false)
	f.becomes("answers", []uint32{1}, []uint32{2}, "up", false)
}

func TestLBRemembersACluster(t *testing.T) {
	f, dir := newFollowed(t)
	f.vip = clitest.FreeAddresses(t, 1)[0]
	path := filepath.Join(dir, "weir.yaml")
	config := clusterSpec(dir, "nat", f.vip, fmt.Sprintf("address: 127.0.0.1, port: %d", namedEcho(t, "a")), fmt.Sprintf("address: 127.0.0.1, port: %d", namedEcho(t, "b")))
	clitest.Must(t, os.WriteFile(path, []byte(config), 0o600))
	run := func() *clitest.Process {
		p := clitest.Start(t, "lb", "lb", "run", "-c", path, "--datapath", "udp", "--owners-state", filepath.Join(dir, "kept.owners"))
		f.admin = "unix:" + p.Socket
		return p
	}
	p := run()
	f.open()
	f.remembers(func() {
		clitest.Must(t, p.Cmd.Process.Kill())
		<-p.Ended
		run()
	})
}

func TestRootKernelFollowsACluster(t *testing.T) {
	clitest.TakesSeconds(t)
	for mode, vip := range map[string]string{"nat": "10.0.0.1:80", "l2dsr": "10.9.9.9:80"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			netlabtest.Root(t)
			lab := kernelLab(t, "owners"+mode)
			f, dir := newFollowed(t)
			f.vip, f.host = vip, lab.Namespace("zone0")
			port := map[string]string{"nat": ", port: 8080"}[mode]
			k := newKernelLB(t, lab.Namespace("gateway"), "tcx", kernelInterfaces, clusterSpec(dir, mode, vip, "address: 10.2.0.2"+port, "address: 10.3.0.2"+port))
			f.admin = "unix:" + k.socket
			f.run()
			f.remembers(func() {
				k.end(syscall.SIGKILL)
				k.start()
			})
		})
	}
}

func TestRootNFQFollowsACluster(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := queueLab(t, "ownersq")
	f, dir := newFollowed(t)
	f.vip, f.host = "10.9.9.9:80", lab.Namespace("zone0")
	f.admin = "unix:" + newQueueLB(t, lab.Namespace("gateway"), clusterSpec(dir, "mark", f.vip, "mark: 101", "mark: 102")).socket
	f.run()
}
