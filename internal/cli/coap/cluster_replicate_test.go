package coap

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/kube/kubetest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// etcd is a server of etcd, which the control plane of package kubetest contains.
type etcd struct {
	t    *testing.T
	args []string
	cmd  *exec.Cmd
}

// startEtcd runs a server of etcd, and returns its URL.
func startEtcd(t *testing.T) string {
	t.Helper()
	clients := freeURL(t)
	newEtcd(t, clients).start()
	return clients
}

func newEtcd(t *testing.T, clients string, more ...string) *etcd {
	t.Helper()
	netlabtest.Tools(t, filepath.Join(kubetest.Directory(), "etcd"))
	peers := freeURL(t)
	e := &etcd{t: t, args: append([]string{
		"--data-dir", filepath.Join(t.TempDir(), "etcd"), "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers, "--unsafe-no-fsync", "--log-level", "error",
	}, more...)}
	t.Cleanup(e.stop)
	return e
}

func (e *etcd) start() {
	e.t.Helper()
	e.cmd = exec.Command(filepath.Join(kubetest.Directory(), "etcd"), e.args...)
	e.cmd.Stderr = os.Stderr
	if err := clitest.StartChild(e.cmd); err != nil {
		e.t.Fatal(err)
	}
}

func (e *etcd) stop() {
	if e.cmd != nil {
		_ = e.cmd.Process.Kill()
		_ = e.cmd.Wait()
		e.cmd = nil
	}
}

func freeURL(t *testing.T) string { return "http://" + clitest.FreeTCP(t).String() }

// replicated is a cluster of three nodes that copy their sessions, without supervisors: a killed process is a crash with loss of memory.
type replicated struct {
	addresses []string
	nodes     []*clitest.Process
}

// startReplicated starts nodes that agree in an etcd cluster; without one they do so among themselves.
func startReplicated(t *testing.T, store string, nodes int, more ...string) *replicated {
	t.Helper()
	r := &replicated{addresses: clitest.FreeAddresses(t, 2*nodes)}
	for i := range nodes {
		in := store
		if in == "" {
			in = "embedded:" + t.TempDir()
		}
		r.nodes = append(r.nodes, securedNode(t, r.addresses, i, append([]string{"--no-supervisor", "--dtls-cluster-replicate", in}, more...)...))
	}
	for _, p := range r.nodes {
		awaitNodesUp(p)
	}
	return r
}

// copies is how a node copies its sessions.
func copies(p *clitest.Process) cluster.ReplicationStatus {
	p.T.Helper()
	s := nodeStatus(p).Copies
	if s == nil {
		p.T.Fatalf("%s copies no sessions", p.Name)
	}
	return *s
}

// awaitCopies waits until a node has so many sessions, and its buddy a copy of each.
func awaitCopies(p *clitest.Process, sessions int) (s cluster.ReplicationStatus) {
	p.T.Helper()
	netlabtest.Eventually(p.T, "all sessions are copied", func() bool {
		s = copies(p)
		return s.Buddy != nil && s.Behind == 0 && s.Sessions == sessions
	})
	return s
}

// steered is a client's socket whose datagrams go to one node or another, as by a balancer. It fails the test when a sequence number comes twice.
type steered struct {
	*net.UDPConn
	t    *testing.T
	to   atomic.Pointer[netip.AddrPort]
	mu   sync.Mutex
	seen map[uint64]netip.AddrPort // epoch and sequence number of the records that have come, with the node that sent them
}

func (s *steered) Write(b []byte) (int, error) { return s.WriteToUDPAddrPort(b, *s.to.Load()) }

func (s *steered) Read(b []byte) (int, error) {
	n, from, err := s.ReadFromUDPAddrPort(b)
	if err == nil {
		s.audit(b[:n], from)
	}
	return n, err
}

// audit looks at the header of each record (RFC 6347 section 4.1; the client's own connection id is empty). A handshake brings new keys.
func (s *steered) audit(b []byte, from netip.AddrPort) {
	const header = 13
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) >= header {
		number := binary.BigEndian.Uint64(b[3:])
		const handshake = 22
		if number>>48 == 0 {
			if b[0] == handshake {
				clear(s.seen)
			}
		} else {
			if before, twice := s.seen[number]; twice {
				s.t.Errorf("the sequence number %x was used twice with the same key, by %s and %s", number, before, from)
			}
			s.seen[number] = from
		}
		b = b[min(len(b), header+int(binary.BigEndian.Uint16(b[11:]))):]
	}
}

// workload is clients that send requests, one after the other, each with another body that is to come back.
type workload struct {
	t       *testing.T
	sockets []*steered
	conns   []*client.Conn
	answers []atomic.Int64
	stop    chan struct{}
	running sync.WaitGroup
	longest atomic.Int64 // of all waits for an answer, in nanoseconds
}

// repeatLate is a first retransmission that comes after the take-over, which takes 4 to 5 s, and three times as long on a machine with much else to do.
// A client concludes after 2.5 times as long that its session is lost.
const repeatLate = 8 * time.Second

func startWorkload(t *testing.T, at string, clients int, ackTimeout time.Duration) *workload {
	t.Helper()
	l := &workload{t: t, answers: make([]atomic.Int64, clients), stop: make(chan struct{})}
	for i := range clients {
		socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		s := &steered{UDPConn: socket, t: t, seen: map[uint64]netip.AddrPort{}}
		l.sockets = append(l.sockets, s)
		l.steer(i, at)
		conn, err := client.Dial(t.Context(), "coaps://"+at, client.DialConfig{AckTimeout: ackTimeout, Timeout: time.Minute, Under: func(own client.RawLink) client.RawLink {
			_ = own.Close()
			return s
		}})
		if err != nil {
			t.Fatal(err)
		}
		l.conns = append(l.conns, conn)
	}
	for i, conn := range l.conns {
		l.running.Go(func() { l.load(i, conn) })
	}
	t.Cleanup(l.end)
	return l
}

func (l *workload) steer(i int, at string) {
	address := netip.MustParseAddrPort(at)
	l.sockets[i].to.Store(&address)
}

func (l *workload) load(i int, conn *client.Conn) {
	for number := 0; ; number++ {
		select {
		case <-l.stop:
			return
		case <-time.After(5 * time.Millisecond): // the client's own pause
		}
		body := fmt.Sprintf("client %d, request %d", i, number)
		began := time.Now()
		x, err := conn.Do(l.t.Context(), &client.Request{Method: message.POST, Path: []string{"echo"}, Payload: []byte(body)})
		if err != nil {
			l.t.Errorf("%s: %v", body, err)
			return
		}
		var m message.Message
		if err := message.Parse(x.Response, &m); err != nil || m.Code != message.Changed || string(m.Payload) != body {
			l.t.Errorf("%s: answered %v %q, %v", body, m.Code, m.Payload, err)
			return
		}
		l.answers[i].Add(1)
		if wait := int64(time.Since(began)); wait > l.longest.Load() {
			l.longest.Store(wait) // two at a time: either is long
		}
	}
}

// goOn waits until each client has had so many answers more.
func (l *workload) goOn(more int64) {
	l.t.Helper()
	goal := make([]int64, len(l.answers))
	for i := range goal {
		goal[i] = l.answers[i].Load() + more
	}
	netlabtest.Eventually(l.t, "each client is served", func() bool {
		for i := range goal {
			if l.answers[i].Load() < goal[i] && !l.t.Failed() {
				return false
			}
		}
		return true
	})
}

func (l *workload) end() {
	select {
	case <-l.stop:
		return
	default:
	}
	close(l.stop)
	l.running.Wait()
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// A node is killed with its memory, under load, and its part of the store with it: the two others agree. Its sessions go on at another node: no
// handshake, no wrong answer, no sequence number twice.
func TestClusterTakesOver(t *testing.T) {
	clitest.TakesSeconds(t)
	const clients = 30
	r := startReplicated(t, "", 3)
	l := startWorkload(t, r.addresses[0], clients, repeatLate)
	l.goOn(3)
	awaitCopies(r.nodes[0], clients)
	if err := r.nodes[0].Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for i := range clients {
		l.steer(i, r.addresses[2+2*(i%2)])
	}
	l.goOn(1)
	t.Logf("all clients are served %v after the crash", time.Since(killed).Round(10*time.Millisecond))
	l.goOn(10)
	l.end()
	var handshakes, taken uint64
	for _, p := range r.nodes[1:] {
		s := nodeStatus(p)
		handshakes += s.Engine.Handshakes
		taken += s.Copies.TakenOver
		if s.Copies.NotRestored+s.Copies.Fenced+s.Engine.BadMACs+s.Engine.LeaseSpent > 0 {
			t.Errorf("%s: %+v, %+v", p.Name, *s.Copies, s.Engine)
		}
	}
	if handshakes != 0 || taken != clients {
		t.Errorf("%d handshakes, %d of %d sessions were taken over", handshakes, taken, clients)
	}
}

// A node is stopped under load, and goes on once another one has its sessions: it seals nothing more with their keys, and they return to it by a
// planned move.
func TestClusterFencesAStoppedNode(t *testing.T) {
	clitest.TakesSeconds(t)
	const clients = 20
	r := startReplicated(t, startEtcd(t), 3)
	l := startWorkload(t, r.addresses[0], clients, repeatLate)
	l.goOn(3)
	awaitCopies(r.nodes[0], clients)
	stopped := r.nodes[0].Cmd.Process
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for i := range clients {
		l.steer(i, r.addresses[2+2*(i%2)])
	}
	l.goOn(1)
	if err := stopped.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	l.goOn(3)
	netlabtest.Eventually(t, "the sessions are back", func() bool { return moves(r.nodes[0]).Sessions == clients })
	l.goOn(3)
	awaitCopies(r.nodes[0], clients)
	l.end()
	first := nodeStatus(r.nodes[0])
	if first.Copies.Fenced != 1 || first.Engine.Fenced != clients || first.Engine.Handshakes != clients {
		t.Errorf("the stopped node: %+v, %+v", *first.Copies, first.Engine)
	}
	var handshakes, taken, lost uint64
	for _, p := range r.nodes {
		s := nodeStatus(p)
		handshakes += s.Engine.Handshakes
		taken += s.Copies.TakenOver
		lost += s.Copies.NotRestored + s.Moves.Lost + s.Moves.Refused
	}
	if handshakes != clients || taken != clients || lost != 0 {
		t.Errorf("%d handshakes, %d of %d sessions were taken over, %d lost", handshakes, taken, clients, lost)
	}
}
