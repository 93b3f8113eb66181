package engine

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/udpio"
)

// counting is a pair that counts the answers it has sent on.
type counting struct {
	pair
	sentOn uint64
}

func (c *counting) Frame(w *Worker, f []byte, from netip.AddrPort, now time.Duration) {
	c.pair.Frame(w, f, from, now)
	if f[0] == 62 {
		c.sentOn++
	}
}

// forwardNode is one of two nodes whose rounds the benchmark runs itself, on its own thread, to read the thread's CPU time.
type forwardNode struct {
	*loop
	alone *udpio.Conn // the link's socket, without segments
	cpu   time.Duration
}

func openForwardNode(b *testing.B, owner uint32, c Cluster) *forwardNode {
	b.Helper()
	loopback := netip.MustParseAddrPort("127.0.0.1:0")
	e, err := Open(Config{
		Listen: loopback, Link: loopback, Workers: 1, CIDs: ByteOwnerCIDs(6, owner), Cluster: c,
		NewHandler: func(*Worker) Handler { return new(mirror) },
		PSK:        func([]byte) ([]byte, bool) { return []byte("key"), true },
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.close)
	fd, err := unix.FcntlInt(uintptr(e.link.Conn(0).FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	alone, err := udpio.AdoptGroup(udpio.Config{Addr: e.LinkAddr(), Batch: e.cfg.Batch, NoSegment: true}, []int{fd})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = alone.Close() })
	return &forwardNode{loop: e.loops[0], alone: alone.Conn(0)}
}

// segments chooses how frames leave.
func (n *forwardNode) segments(on bool) {
	conn := n.link
	if !on {
		conn = n.alone
	}
	n.worker.out.linkOut = func(m []udpio.Message) { conn.WriteAll(m) }
}

// until runs rounds, each of which waits for datagrams, until count has grown by n.
func (n *forwardNode) until(b *testing.B, count *uint64, grown int) {
	want, start := *count+uint64(grown), threadTime()
	for *count < want {
		if err := n.read(); err != nil {
			b.Fatal(err)
		}
		n.worker.tick()
		n.worker.out.flush()
	}
	n.cpu += threadTime() - start
}

func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// BenchmarkForward is the CPU time of both nodes for each request that the wrong one of them receives, less what the same request
// costs its owner without a detour. The three ways take turns in one run: straight to the owner, forwarded with each frame in a
// datagram of its own, and forwarded in segments. burst is how many requests are read at once.
func BenchmarkForward(b *testing.B) {
	for _, clients := range []int{200, 2000} {
		for _, burst := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("clients=%d/burst=%d", clients, burst), func(b *testing.B) { benchmarkForward(b, clients, burst) })
		}
	}
}

func benchmarkForward(b *testing.B, clients, burst int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	there, back := &counting{pair: pair{owner: 2}}, &counting{pair: pair{owner: 1}}
	router, owner := openForwardNode(b, 1, there), openForwardNode(b, 2, back)
	there.other, back.other = owner.link.LocalAddr(), router.link.LocalAddr()
	load := newForwardLoad(b, owner.worker, clients, burst)
	var cost [3]time.Duration
	for b.Loop() {
		for way := range cost {
			router.cpu, owner.cpu = 0, 0
			if way == 0 {
				load.ask(owner.public.LocalAddr())
				owner.until(b, &owner.worker.stats.Requests, burst)
			} else {
				router.segments(way == 2)
				owner.segments(way == 2)
				load.ask(router.public.LocalAddr())
				router.until(b, &router.worker.stats.Foreign, burst)
				owner.until(b, &owner.worker.stats.Returned, burst)
				router.until(b, &there.sentOn, burst)
			}
			load.collect()
			cost[way] += router.cpu + owner.cpu
		}
	}
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(b.N*burst) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(each(cost[0]), "us/straight")
	b.ReportMetric(each(cost[1]-cost[0]), "us/alone")
	b.ReportMetric(each(cost[2]-cost[0]), "us/segments")
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		b.Logf("load average %s", strings.TrimSpace(string(load)))
	}
}

// forwardLoad is a number of clients, which share a few sockets and take turns in bursts.
type forwardLoad struct {
	b       *testing.B
	devices []*device
	sockets [16]*net.UDPConn
	burst   int
	next    int
	answer  [2048]byte
}

// newForwardLoad makes the sessions at their owner.
func newForwardLoad(b *testing.B, owner *Worker, clients, burst int) *forwardLoad {
	b.Helper()
	l := &forwardLoad{b: b, burst: burst}
	x := &wire{t: b, w: owner}
	send := owner.out.publicOut
	x.capture()
	for i := range clients {
		l.devices = append(l.devices, x.mustConnect(addr(i), fmt.Sprint("dev", i), true))
	}
	owner.out.publicOut = send
	for i := range l.sockets {
		var err error
		if l.sockets[i], err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { l.sockets[i].Close() })
	}
	return l
}

// ask sends the requests of a burst.
func (l *forwardLoad) ask(to netip.AddrPort) {
	payload := bytes.Repeat([]byte("x"), 40)
	for i := range l.burst {
		record := l.devices[(l.next+i)%len(l.devices)].seal(payload)
		if _, err := l.sockets[i%len(l.sockets)].WriteToUDPAddrPort(record, to); err != nil {
			l.b.Fatal(err)
		}
	}
	l.next += l.burst
}

// collect receives their answers.
func (l *forwardLoad) collect() {
	for i := range l.burst {
		s := l.sockets[i%len(l.sockets)]
		if err := s.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			l.b.Fatal(err)
		}
		if _, err := s.Read(l.answer[:]); err != nil {
			l.b.Fatal(err)
		}
	}
}
