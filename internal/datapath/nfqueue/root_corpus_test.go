package nfqueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer/steertest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Queues of the tests in a namespace: the one under test, and one behind it that shows what left.
const (
	testQueue   = 7
	behindQueue = 99
)

// testTimeout is how long a test waits for an expected event.
const testTimeout = 20 * time.Second

// tunWorld is a namespace where packets written to a tun device meet the queue under test in table raw, and, once
// accepted, the queue behind it in table mangle, still in PREROUTING: with every byte and the mark as the verdict left them.
type tunWorld struct {
	box    *netlab.Host
	tun    *os.File
	behind *kernelQueue
	left   []Packet
}

func newTunWorld(t *testing.T) *tunWorld {
	t.Helper()
	netlabtest.Root(t)
	netlabtest.Tools(t, "iptables", "ip6tables")
	lab := netlabtest.Up(t, netlab.Topology{Name: "nfq", Namespaces: []netlab.Namespace{{
		Name: "box", Forward: true,
		Sysctls: []netlab.Sysctl{{Key: "net.ipv4.conf.all.rp_filter", Value: "0"}, {Key: "net.ipv4.conf.default.rp_filter", Value: "0"}},
	}}})
	w := &tunWorld{box: lab.Namespace("box"), left: make([]Packet, 16)}
	if err := w.box.Do(func() error {
		var err error
		if w.tun, err = openTun("in0"); err != nil {
			return err
		}
		c := Config{CopyRange: MaxCopyRange, Batch: 16}
		if err := c.setDefaults(); err != nil {
			return err
		}
		if w.behind, err = openQueue(&c, behindQueue); err != nil {
			return err
		}
		return w.behind.bind(&c)
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.tun.Close()
		_ = w.behind.Close()
	})
	for _, command := range []string{"iptables", "ip6tables"} {
		w.exec(t, command, "-w", "-t", "raw", "-A", "PREROUTING", "-i", "in0", "-j", "NFQUEUE", "--queue-num", fmt.Sprint(testQueue))
		w.exec(t, command, "-w", "-t", "mangle", "-A", "PREROUTING", "-i", "in0", "-j", "NFQUEUE", "--queue-num", fmt.Sprint(behindQueue))
	}
	w.exec(t, "ip", "link", "set", "in0", "mtu", "65535", "up")
	return w
}

func (w *tunWorld) exec(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := w.box.Exec(context.Background(), program, args...); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
}

// openTun makes a tun device in the calling thread's namespace; packets written to the file come in on it.
func openTun(name string) (*os.File, error) {
	file, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	var request [40]byte // struct ifreq
	copy(request[:15], name)
	*(*uint16)(unsafe.Pointer(&request[16])) = unix.IFF_TUN | unix.IFF_NO_PI
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), unix.TUNSETIFF, uintptr(unsafe.Pointer(&request[0]))); errno != 0 {
		_ = file.Close()
		return nil, fmt.Errorf("make tun %s: %w", name, errno)
	}
	return file, nil
}

// tunPath runs a case of the corpus as real packets through a real queue.
type tunPath struct {
	t     *testing.T
	w     *tunWorld
	clock clock
	d     *Datapath
}

func newTunPath(t *testing.T, w *tunWorld) *tunPath {
	t.Helper()
	p := &tunPath{t: t, w: w}
	if err := w.box.Do(func() (err error) {
		p.d, err = Open(Config{First: testQueue, Length: 64, Batch: 8, Now: p.clock.Now})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.d.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Traits implements steertest.Path. The kernel discards malformed packets before any queue.
func (p *tunPath) Traits() steertest.Traits {
	return steertest.Traits{Caps: p.d.Caps(), AsMark: true, Has: []string{"clock", "hold", "exact", "rate"}}
}

func (p *tunPath) Apply(s *lb.Snapshot) error {
	first := p.d.workers == nil
	if err := p.d.Apply(s); err != nil || !first {
		return err
	}
	netlabtest.Run(p.t, p.d.Run)
	return nil
}

func (p *tunPath) Packet(data []byte, frame bool, now time.Duration) (steertest.Result, error) {
	p.clock.set(now)
	if frame { // link-layer headers and VLAN tags are gone before any queue of IP packets
		var parsed packet.Packet
		switch err := packet.ParseFrame(data, &parsed); {
		case errors.Is(err, packet.ErrNotIP):
			steertest.Refuse("no rule of iptables sees frames that are not IP")
		case err != nil:
			return steertest.Result{}, err
		}
		data = parsed.Data
	}
	before := p.d.Stats()
	if _, err := p.w.tun.Write(data); err != nil {
		return steertest.Result{}, fmt.Errorf("write to the tun: %w", err)
	}
	after, err := await(p.d, func(s *Stats) bool { return sum(s.Reasons) > sum(before.Reasons) })
	if err != nil {
		return steertest.Result{}, err
	}
	decided := int(sum(after.Reasons) - sum(before.Reasons)) // with those that it released
	dropped, held := 0, 0
	for i := range after.Reasons {
		switch n := int(after.Reasons[i] - before.Reasons[i]); lb.Reason(i).Action() {
		case lb.Drop:
			dropped += n
		case lb.Hold:
			held += n
		}
	}
	left, err := p.w.await(decided - dropped - held)
	if err != nil {
		return steertest.Result{}, err
	}
	if dropped+held > 0 && decided == 1 {
		v := &Verdict{Drop: true}
		if held > 0 {
			v = nil
		}
		return resultOf(before, after, v, nil)
	}
	first := left[0] // the packet itself; those released follow it
	if !bytes.Equal(first.Data, data) {
		return steertest.Result{}, fmt.Errorf("the packet left as %x", first.Data)
	}
	for _, other := range left[1:] {
		if other.Mark != first.Mark {
			return steertest.Result{}, fmt.Errorf("a released fragment left with mark %d, the first one with %d", other.Mark, first.Mark)
		}
	}
	return resultOf(before, after, &Verdict{Mark: first.Mark, Marked: first.Mark != 0}, first.Data)
}

// await requests statistics until they are as wanted.
func await(d *Datapath, done func(*Stats) bool) (Stats, error) {
	for start := time.Now(); ; runtime.Gosched() {
		s := d.Stats()
		if done(&s) {
			return s, nil
		}
		if time.Since(start) > testTimeout {
			return s, errors.New("the packet never reached a decision")
		}
	}
}

// await takes n packets that were accepted. They end here.
func (w *tunWorld) await(n int) ([]Packet, error) {
	var left []Packet
	for start := time.Now(); len(left) < n; {
		got, err := w.behind.Receive(w.left, idleTimeout)
		if err != nil {
			return nil, err
		}
		for _, p := range w.left[:got] {
			p.Data = bytes.Clone(p.Data)
			left = append(left, p)
			if err := w.behind.Answer([]Verdict{{ID: p.ID, Drop: true}}); err != nil {
				return nil, err
			}
		}
		if time.Since(start) > testTimeout {
			return nil, fmt.Errorf("%d packets left, want %d", len(left), n)
		}
	}
	return left, nil
}

// The corpus as real packets through the kernel's queue. Beyond it, besides modes: packets that no rule of iptables sees.
func TestRootNFQCorpus(t *testing.T) {
	w := newTunWorld(t)
	refused := beyond(t, "mark", "l2dsr")
	for name, why := range map[string]string{
		"not-ip":                  "no rule of iptables sees",
		"vlan-three":              "no rule of iptables sees",
		"icmp-quote-short":        "has no malformed",
		"malformed-extensions":    "has no malformed",
		"malformed-ihl":           "has no malformed",
		"malformed-tiny-fragment": "has no malformed",
		"malformed-udp-length":    "has no malformed",
		"mapped-on-wire":          "has no malformed",
	} {
		refused[name] = why
	}
	steertest.Run(t, refused, func(t *testing.T) steertest.Path { return newTunPath(t, w) })
}
