package ebpf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// reordered is a data path whose holder works at the same time as the programs, as in service.
type reordered struct {
	d       *Datapath
	service uint16
	total   uint64 // later fragments that were sent
}

// TestRootReorderedOnManyCPUs: of each datagram the later fragment comes first, or on another processor in the same moment, while
// the holder takes fragments in and gives them back. Every later fragment leaves, and once.
func TestRootReorderedOnManyCPUs(t *testing.T) {
	t.Parallel()
	const rounds, burst = 100, 32
	for _, hook := range hooks {
		for _, apart := range []bool{false, true} {
			t.Run(fmt.Sprint(hook, "/apart=", apart), func(t *testing.T) {
				if apart && runtime.NumCPU() < 2 {
					t.Skip("needs two processors")
				}
				w := newWorld(t)
				defer w.close()
				r := w.reordered(t, hook)
				for round := range rounds {
					var begin [burst]atomic.Int32
					w.onEachCPU(t, func(cpu int) error {
						if cpu > 1 || cpu > 0 && !apart {
							return nil
						}
						for i := range burst {
							id := round*burst + i
							order := []int{1, 0}
							if apart { // one fragment on each
								order = []int{1 - cpu}
								begin[i].Add(1)
								busily(func() bool { return begin[i].Load() == 2 })
							}
							for _, piece := range order {
								options := ebpf.RunOptions{Data: frameOf(pieceOf(id, piece)), DataOut: make([]byte, 2048), Repeat: 1}
								if hook == attach.HookTCX {
									options.Context = &ebpftest.SkBuff{}
								}
								if _, err := r.d.program(hook).Run(&options); err != nil {
									return err
								}
							}
						}
						return nil
					})
					r.total += burst
					r.drained(t)
				}
			})
		}
	}
}

// busily waits until is returns true. Other goroutines may have the processor in between: the one that is waited for may need it. Where
// that has no processor for a while, because other programs have it, this one is free too.
func busily(is func() bool) {
	nap := unix.NsecToTimespec(int64(50 * time.Microsecond))
	for i := 1; !is(); i++ {
		if i%64 == 0 {
			runtime.Gosched()
		}
		if i > 10_000 {
			_ = unix.Nanosleep(&nap, nil) // interrupted: it looks sooner
		}
	}
}

// pieceOf is one of two fragments of a datagram.
func pieceOf(id, piece int) []byte {
	d, err := packet.ParseText("udp 10.0.0.0:5000 > 192.0.2.2:80 payload=1200 id=1 frag=800 csum=0")
	if err != nil || len(d.Packets) != 2 {
		panic(fmt.Sprint(err, " fragments: ", len(d.Packets)))
	}
	p := d.Packets[piece]
	binary.BigEndian.PutUint32(p[12:], 11<<24+uint32(id%256))
	binary.BigEndian.PutUint16(p[4:], uint16(id))
	binary.BigEndian.PutUint16(p[10:], 0)
	binary.BigEndian.PutUint16(p[10:], packet.Checksum(p[:20], 0))
	return p
}

// reordered opens a data path in real time and starts its holder.
func (w *world) reordered(t *testing.T, hook attach.Hook) *reordered {
	t.Helper()
	snapshot := compile(t, `
limits: {flows: 65536, fragments: 65536, fragment_ttl: 1m}
services:
- name: pool
  mode: l2dsr
  vips: [{address: "192.0.2.2", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.2.0.1"}, {name: b, address: "10.2.0.2"}]
`, Caps(hook))
	r := &reordered{}
	ebpftest.Do(t, w.host, func() (err error) {
		if r.d, err = Open(Config{Hook: hook, detached: true}); err != nil {
			return err
		}
		return r.d.Apply(snapshot)
	})
	w.hops(r.d)
	for number, name := range r.d.state.names {
		if name == "pool" {
			r.service = uint16(number)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.d.runHeld(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		case <-time.After(10 * time.Second): // with nothing to read it looks around every fragment_ttl/4, 15 s
			t.Fatal("the holder does not end when it is stopped")
		}
		r.d.Close()
	})
	for !r.d.holds.Load() {
		runtime.Gosched()
	}
	return r
}

// drained waits until all later fragments have left.
func (r *reordered) drained(t *testing.T) {
	t.Helper()
	left := uint64(0)
	netlabtest.Eventually(t, "all later fragments leave", func() bool {
		left = r.d.counts().service(r.service)[lb.ReasonFragment].Packets
		return left >= r.total
	}, func() string { return fmt.Sprintf("%d were sent, %d left", r.total, left) })
	if left > r.total {
		t.Fatalf("%d later fragments were sent, %d left", r.total, left)
	}
}
