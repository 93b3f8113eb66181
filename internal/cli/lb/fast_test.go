package lb

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// fastLab is queueLab whose rule leaves packets with a mark alone.
func fastLab(t *testing.T, name string) *netlab.Lab {
	t.Helper()
	lab := queueLab(t, name)
	inGateway(t, lab, queueRule("-D")...)
	inGateway(t, lab, "iptables", "-w", "-t", "mangle", "-A", "PREROUTING", "-i", "veth0", "-d", "10.9.9.9", "-m", "mark", "--mark", "0", "-j", "NFQUEUE", "--queue-balance", "0:1")
	return lab
}

// rawSender sends IPv4 packets as they are.
type rawSender struct {
	t  *testing.T
	fd int
}

func newRawSender(t *testing.T, host *netlab.Host) *rawSender {
	t.Helper()
	s := &rawSender{t: t}
	if err := host.Do(func() (err error) {
		s.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s.fd) })
	return s
}

func (s *rawSender) send(b []byte) {
	s.t.Helper()
	if err := unix.Sendto(s.fd, b, 0, &unix.SockaddrInet4{Addr: [4]byte(b[16:20])}); err != nil {
		s.t.Fatal(err)
	}
}

func ipv4(from, to netip.Addr, protocol byte, id uint16, flagsAndOffset uint16, payload []byte) []byte {
	b := make([]byte, 20, 20+len(payload))
	b[0], b[8], b[9] = 0x45, 64, protocol
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(payload)))
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], flagsAndOffset)
	copy(b[12:], from.AsSlice())
	copy(b[16:], to.AsSlice())
	return append(b, payload...)
}

// udpFragments is a datagram in three fragments, without a checksum.
func udpFragments(from, to netip.AddrPort, id uint16, payload []byte) [][]byte {
	const each, more = 208, 0x2000
	udp := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(udp, from.Port())
	binary.BigEndian.PutUint16(udp[2:], to.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(payload)))
	udp = append(udp, payload...)
	return [][]byte{
		ipv4(from.Addr(), to.Addr(), unix.IPPROTO_UDP, id, more, udp[:each]),
		ipv4(from.Addr(), to.Addr(), unix.IPPROTO_UDP, id, more|each/8, udp[each:2*each]),
		ipv4(from.Addr(), to.Addr(), unix.IPPROTO_UDP, id, 2*each/8, udp[2*each:]),
	}
}

// TCP and UDP never see the queue; of fragments, only datagrams whose first one is late do, and whole; ICMP errors only when
// they quote a flow that the program does not know. All of a flow goes to one backend.
func TestRootNFQFast(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := fastLab(t, "nfqfast")
	client := lab.Namespace("zone0")
	k := newQueueLB(t, lab.Namespace("gateway"), fmt.Sprintf(queueSpec, 100), "--fast", "on", "--interface", "veth0")
	queued := func(s *v1.LBStatus) uint64 { return queuedTotal(s.Queues.Services["dsr"]) }
	names := map[string]int{}
	var talkers []*talker
	for range 12 {
		talkers = append(talkers, newTalker(t, client, "tcp", "10.9.9.9:80"), newTalker(t, client, "udp", "10.9.9.9:80"))
	}
	for _, talker := range talkers {
		if err := talker.say(); err != nil {
			t.Error(err)
		}
		names[talker.name]++
	}
	if names["a"] == 0 || names["b"] == 0 {
		t.Errorf("the clients went to %v", names)
	}
	status := k.until("the fast path", func(s *v1.LBStatus) bool { return s.Fast != nil && s.Fast.InUse && s.Kernel != nil })
	if n := queued(status); n != 0 {
		t.Errorf("%d packets of TCP and UDP were queued", n)
	}

	raw, order := newRawSender(t, client), rand.New(rand.NewPCG(4, 8)) //nolint:gosec // reproducible
	id, early := uint16(1000), uint64(0)
	for i := range 24 {
		talker := talkers[2*(i%12)+1]
		from, to := addrPortOf(talker.conn.LocalAddr()), addrPortOf(talker.conn.RemoteAddr())
		sequence := order.Perm(3)
		if i == 0 {
			sequence = []int{2, 1, 0}
		}
		payload := fmt.Sprintf("datagram %d %s\n", i, strings.Repeat("x", 500))
		got, b := "", make([]byte, 2048)
		for attempt := 0; attempt < 20 && !strings.Contains(got, fmt.Sprintf("datagram %d ", i)); attempt++ {
			id++
			if sequence[0] != 0 {
				early++
			}
			fragments := udpFragments(from, to, id, []byte(payload))
			for _, at := range sequence {
				raw.send(fragments[at])
			}
			talker.conn.SetReadDeadline(time.Now().Add(time.Second))
			if n, err := talker.conn.Read(b); err == nil {
				got = string(b[:n])
			}
		}
		if want := talker.name + " " + payload; got != want {
			t.Errorf("fragments in the order %v: %.30q came back, want %.30q", sequence, got, want)
		}
	}
	status = k.until("fragments in the queue", func(s *v1.LBStatus) bool { return queued(s) >= 3*early })
	if n := queued(status); n != 3*early || early == 0 {
		t.Errorf("%d packets were queued; %d datagrams of 3 came out of order", n, early)
	}
	if s := status.Fast; !s.InUse || status.Kernel.Reasons["dsr"]["fragment"].Packets == 0 {
		t.Errorf("the program followed no fragment: %+v, %+v", s, status.Kernel.Reasons)
	}

	known, vip := addrPortOf(talkers[1].conn.LocalAddr()), netip.MustParseAddrPort("10.9.9.9:80")
	for _, quote := range []struct {
		client netip.AddrPort
		seen   func(*v1.LBStatus) uint64
	}{
		{known, func(s *v1.LBStatus) uint64 { return s.Kernel.Reasons["dsr"]["icmp_error"].Packets }},
		{netip.AddrPortFrom(known.Addr(), 1), func(s *v1.LBStatus) uint64 { return s.Queues.Services["dsr"].Reasons["icmp_error"] }},
	} {
		answer := ipv4(vip.Addr(), quote.client.Addr(), unix.IPPROTO_UDP, 1, 0, []byte{0, 80, byte(quote.client.Port() >> 8), byte(quote.client.Port()), 0, 8, 0, 0})
		binary.BigEndian.PutUint16(answer[10:], packet.Checksum(answer[:20], 0))
		k.until("an ICMP error about "+quote.client.String(), func(s *v1.LBStatus) bool {
			raw.send(packet.Quote(netip.MustParseAddr("10.0.0.2"), answer, 1400, 548)) // again, until it is there
			return quote.seen(s) > 0
		})
	}
	at := "--admin=unix:" + k.socket
	if out, _ := clitest.Weir(t, "lb", "status", at); strings.Contains(out, "--unmarked") {
		t.Errorf("the rules are as they should be:\n%s", out)
	}
	for _, c := range []struct{ command, want string }{
		{"status", "fast path in use"}, {"show", "Fast path, before the queue:"}, {"flows", "10.9.9.9:80"},
	} {
		if out, code := clitest.Weir(t, "lb", c.command, at); code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d, lacks %q:\n%s", c.command, code, c.want, out)
		}
	}
	if metrics := clitest.HTTPGet(t, k.socket, "/metrics"); !strings.Contains(metrics, "weir_fast_path 1") || !strings.Contains(metrics, `weir_packets_total{datapath="ebpf",reason="maglev",service="dsr"}`) {
		t.Errorf("metrics lack the fast path:\n%s", metrics)
	} else {
		statustest.Check(t, "the queues with a fast path", metrics)
	}
}

func addrPortOf(a net.Addr) netip.AddrPort {
	at := a.(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// A rule that queues also what the program has marked makes the fast path idle: weir says so, and how to mend it.
func TestRootNFQFastQueuedTwice(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := queueLab(t, "nfqtwice") // its rule does not look at marks
	k := newQueueLB(t, lab.Namespace("gateway"), fmt.Sprintf(queueSpec, 100), "--fast", "on", "--interface", "veth0")
	k.until("the fast path", func(s *v1.LBStatus) bool { return s.Fast != nil && s.Fast.InUse })
	if err := newTalker(t, lab.Namespace("zone0"), "tcp", "10.9.9.9:80").say(); err != nil {
		t.Error(err)
	}
	k.until("packets with a mark in the queue", func(s *v1.LBStatus) bool {
		return slices.ContainsFunc(s.Queues.Queues, func(q v1.NFQueue) bool { return q.Marked > 0 })
	})
	at := "--admin=unix:" + k.socket
	for _, command := range []string{"status", "show"} {
		if out, code := clitest.Weir(t, "lb", command, at); code != 0 || !strings.Contains(out, "weir lb rules --unmarked") {
			t.Errorf("%s: %d, does not name the remedy:\n%s", command, code, out)
		}
	}
	if metrics := clitest.HTTPGet(t, k.socket, "/metrics"); !strings.Contains(metrics, `weir_queue_marked_total{queue="`) {
		t.Errorf("metrics lack marked packets:\n%s", metrics)
	}
}

const ruledSpec = `- name: ruled
  mode: mark
  flows: [{name: far, protocols: [udp], destinations: [192.0.2.1/32]}]
  backends: [{name: a, mark: 101}]
`

// A configuration that the program cannot do all of is the queue's alone while it is in force, and flows stay where they are.
func TestRootNFQFastComesAndGoes(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := fastLab(t, "nfqauto")
	plain := fmt.Sprintf(queueSpec, 100)
	k := newQueueLB(t, lab.Namespace("gateway"), plain, "--interface", "veth0") // auto
	k.until("the fast path", func(s *v1.LBStatus) bool { return s.Fast.InUse })
	var talkers []*talker
	for range 8 {
		talkers = append(talkers, newTalker(t, lab.Namespace("zone0"), "tcp", "10.9.9.9:80"), newTalker(t, lab.Namespace("zone0"), "udp", "10.9.9.9:80"))
	}
	all := func() {
		t.Helper()
		for _, talker := range talkers {
			if err := talker.say(); err != nil {
				t.Error(err)
			}
		}
	}
	for range 2 {
		k.reload(plain + ruledSpec)
		if s := k.until("the queue alone", func(s *v1.LBStatus) bool { return !s.Fast.InUse }); s.Kernel != nil || !strings.Contains(s.Fast.Why, "flow rules") {
			t.Errorf("%+v", s.Fast)
		}
		all()
		k.until("packets in the queue", func(s *v1.LBStatus) bool { return queuedTotal(s.Queues.Services["dsr"]) >= uint64(len(talkers)) })
		k.reload(plain)
		k.until("the fast path again", func(s *v1.LBStatus) bool { return s.Fast.InUse && s.Fast.Why == "" })
		all()
	}
}

// The program stays attached when weir is killed or ends: flows go on without it, no packet of theirs is lost, and the next weir takes program
// and flows over. One that does not use the program takes it away.
func TestRootNFQFastOutlivesKills(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := fastLab(t, "nfqfastkill")
	plain := fmt.Sprintf(queueSpec, 100)
	k := newQueueLB(t, lab.Namespace("gateway"), plain, "--interface", "veth0")
	k.until("the fast path", func(s *v1.LBStatus) bool { return s.Fast.InUse && s.Kernel.Pins == k.pins && !s.Kernel.TookOver })
	var talkers []*talker
	for range 8 {
		talkers = append(talkers, newTalker(t, lab.Namespace("zone0"), "tcp", "10.9.9.9:80"), newTalker(t, lab.Namespace("zone0"), "udp", "10.9.9.9:80"))
	}
	k.reload(fmt.Sprintf(queueSpec, 1)) // of 101 new flows one would go to a
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		k.end(signal)
		for i, talker := range talkers { // there is no weir
			if err := talker.say(); err != nil {
				t.Errorf("after signal %d, client %d: %v", signal, i, err)
			}
		}
		k.start()
		k.until("the program again", func(s *v1.LBStatus) bool { return s.Fast.InUse && s.Kernel.TookOver })
		for i, talker := range talkers {
			if err := talker.say(); err != nil {
				t.Errorf("taken over, client %d: %v", i, err)
			}
		}
	}
	k.end(syscall.SIGKILL)
	k.args = append(k.args, "--fast", "off")
	k.start()
	k.until("the queue alone", func(s *v1.LBStatus) bool { return !s.Fast.InUse })
	if _, err := os.Stat(k.pins); !os.IsNotExist(err) {
		t.Errorf("the program that is not used is still at %s: %v", k.pins, err)
	}
}

// With --fast on such a configuration is refused, and the last one stays in force on both paths.
func TestRootNFQFastInsists(t *testing.T) {
	clitest.TakesSeconds(t)
	lab := fastLab(t, "nfqinsist")
	plain := fmt.Sprintf(queueSpec, 100)
	k := newQueueLB(t, lab.Namespace("gateway"), plain, "--interface", "veth0", "--fast", "on")
	k.write(plain + ruledSpec)
	k.until("the refusal", func(s *v1.LBStatus) bool {
		return strings.Contains(s.Error, "--fast on: flow rules are decided by the queue only") && s.Fast.InUse && s.Generation == 1
	})
	newTalker(t, lab.Namespace("zone0"), "tcp", "10.9.9.9:80")
	if s := k.until("status", func(*v1.LBStatus) bool { return true }); queuedTotal(s.Queues.Services["dsr"]) != 0 || s.Queues.Generation != 1 {
		t.Errorf("%d packets were queued in generation %d", queuedTotal(s.Queues.Services["dsr"]), s.Queues.Generation)
	}
}
