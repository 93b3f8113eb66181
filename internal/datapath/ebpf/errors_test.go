package ebpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootErrorsHaveBudgetsApart: whoever sends packets whose hop limit ends
// here does not keep others from learning the size that fits.
func TestRootErrorsHaveBudgetsApart(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			w := newWorld(t)
			defer w.close()
			last := frameOf(text(t, "udp 10.0.0.1:5000 > 192.0.2.2:80 ttl=1"))
			large := frameOf(text(t, "udp 10.0.0.1:5000 > 192.0.2.2:80 df payload=1200"))
			ebpftest.Do(t, w.host, func() error {
				w.there = true
				d := w.serving(t, hook, `
services:
- name: nat
  mode: nat
  vips: [{address: "192.0.2.2", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.2.0.1"}]
`)
				for number := range d.tables.Backends {
					for i := range d.tables.Backends[number].Hop {
						d.tables.Backends[number].Hop[i].Mtu = 1000
					}
				}
				notified := func(frame []byte) bool {
					verdict, _, _, err := w.run(d, frame, time.Second)
					if err != nil {
						t.Error(err)
					}
					return verdict == ebpftest.Redirected(hook)
				}
				errors := 0
				for range 1500 {
					if notified(last) {
						errors++
					}
				}
				if errors != 1000 {
					t.Errorf("notified %d senders of the end of a hop limit, want 1000", errors)
				}
				if !notified(large) {
					t.Error("no sender is notified of the size that fits")
				}
				return nil
			})
		})
	}
}

// TestRootErrorsThroughCards: an error about a packet whose checksum a card was
// to finish arrives, also by an interface that finishes checksums itself.
func TestRootErrorsThroughCards(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, narrowChain(2, hook))
			serve(t, lab.Namespace("backend"), ":8080")
			if out, err := lab.Namespace("lb").Exec(t.Context(), "ethtool", "-K", "left", "tx", "off"); err != nil {
				t.Fatal(out, err)
			}
			start(t, lab.Namespace("lb"), Config{Interfaces: []string{"left", "right"}, Hook: hook}, chainSpec("nat"))
			client := lab.Namespace("client")
			for i, vip := range bothVIPs {
				if got := probeMTU(t, client, vip, 1500-[]int{28, 48}[i]); got != 1400 {
					t.Errorf("%s: the client found %d, want 1400", vip, got)
				}
				if got, want := hopAt(t, client, vip, 2), netip.MustParseAddr([]string{"10.2.0.2", "2001:db8:2::2"}[i]); got != want {
					t.Errorf("%s: hop 2 is %s, want %s", vip, got, want)
				}
			}
		})
	}
}

// TestRootSameFlowOpenedTwice: two processors open the same flow at once; the one
// that comes too late leaves nothing that hides the other one's entry.
func TestRootSameFlowOpenedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	d := w.serving(t, attach.HookTCX, `
services:
- name: nat
  mode: nat
  vips: [{address: "192.0.2.2", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.2.0.1"}]
`)
	packet := text(t, "udp 10.0.0.1:5000 > 192.0.2.2:80")
	send := func(want string) {
		t.Helper()
		if r, err := w.packet(d, packet, false, time.Second); err != nil || r.Reason.String() != want {
			t.Fatalf("%v, %v; want %s", r.Reason, err, want)
		}
	}
	send("maglev")
	var bucket *bpf.Bucket
	for i := range d.tables.Flows {
		if d.tables.Flows[i].Slots[0].Fingerprint != 0 {
			bucket = &d.tables.Flows[i]
		}
	}
	// The first packet claims slot 0, its duplicate claims slot 1 and the reply's key.
	clear(d.tables.Flows)
	clear(d.tables.Replies)
	bucket.Slots[0].Fingerprint = 1
	send("maglev")
	second := bucket.Slots[1].Fingerprint
	bucket.Slots[0].Fingerprint, bucket.Slots[1].Fingerprint = 0, 1
	send("flow_table_full")
	bucket.Slots[1].Fingerprint = second
	send("conntrack")
}

// TestRootRepliesGoWithTheirFlows: what is remembered for ever of a backend is
// forgotten with it, in both tables.
func TestRootRepliesGoWithTheirFlows(t *testing.T) {
	t.Parallel()
	const spec = `
services:
- name: nat
  mode: nat
  timeouts: {udp: never}
  vips: [{address: "192.0.2.2", protocol: udp, port: 80}]
  backends: [{name: %s, address: "10.2.0.1"}]
`
	w := newWorld(t)
	defer w.close()
	d := w.serving(t, attach.HookTCX, fmt.Sprintf(spec, "a"))
	for i := range 100 {
		if _, err := w.packet(d, text(t, fmt.Sprintf("udp 10.0.0.1:%d > 192.0.2.2:80", 5000+i)), false, 0); err != nil {
			t.Fatal(err)
		}
	}
	if f := d.tables.Fill(d.now()); f.Flows != 100 || f.Replies != 100 {
		t.Fatalf("%d flows and %d replies", f.Flows, f.Replies)
	}
	if err := d.Apply(compile(t, fmt.Sprintf(spec, "b"), Caps(attach.HookTCX))); err != nil {
		t.Fatal(err)
	}
	if f := d.tables.Fill(d.now()); f.Flows != 0 || f.Replies != 0 {
		t.Errorf("%d flows and %d replies are left of a backend that is gone", f.Flows, f.Replies)
	}
}

// TestRootSourcePortsOnManyCPUs: processors that look for a free source port at
// the same time never give one to two flows, nor lose a flow's reply.
func TestRootSourcePortsOnManyCPUs(t *testing.T) {
	t.Parallel()
	const rounds, each = 300, 32
	w := newWorld(t)
	defer w.close()
	d := w.serving(t, attach.HookTCX, `
services:
- name: nat
  mode: nat
  timeouts: {udp: 10s}
  vips: [{address: "192.0.2.2", protocol: udp, port: 80}]
  snat: {addresses: ["198.18.1.1"], ports: 2000-2063}
  backends: [{name: a, address: "10.2.0.1"}]
`)
	cpus := runtime.NumCPU()
	begin, ended := make([]chan int, cpus), make(chan error, cpus)
	for cpu := range cpus {
		begin[cpu] = make(chan int)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread, bound to its processor, ends with the goroutine
			var one unix.CPUSet
			one.Set(cpu)
			err := unix.SchedSetaffinity(0, &one)
			frame := frameOf(text(t, "udp 10.0.0.1:5000 > 192.0.2.2:80 csum=0"))
			for round := range begin[cpu] {
				for i := range each {
					binary.BigEndian.PutUint32(frame[14+12:], 10<<24|uint32(cpu)<<20|uint32(round*each+i))
					if _, e := d.program(attach.HookTCX).Run(&ebpf.RunOptions{Data: frame, Repeat: 1}); e != nil {
						err = e
					}
				}
				ended <- err
			}
		}()
	}
	for round := range rounds {
		d.tables.Control.Now = uint64((24*time.Hour + time.Duration(round)*time.Minute) / d.clock.Tick)
		for _, c := range begin {
			c <- round
		}
		for range begin {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		ports := map[uint16]int{}
		for i := range d.tables.Flows {
			for at, slot := range d.tables.Flows[i].Slots {
				number := i*bpf.BucketSlots + at
				if e := d.tables.Entries[number]; slot.Fingerprint > 1 && maps.Alive(slot.Meta, d.now()) {
					if other, taken := ports[e.NatPort]; taken {
						t.Fatalf("round %d: flows %d and %d have port %d", round, other, number, maps.Swap16(e.NatPort))
					}
					ports[e.NatPort] = number
				}
			}
		}
	}
	for _, c := range begin {
		close(c)
	}
}
