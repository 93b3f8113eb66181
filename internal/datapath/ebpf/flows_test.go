package ebpf

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// fillFlows enters n flows to the only backend of the only service, as the program would, and says how many had room.
func fillFlows(d *Datapath, n int) (entered int) {
	t, a := d.tables, d.state.inForce["pool"]
	r := rand.New(rand.NewPCG(1, 2))
	now := d.now()
	target := uint64(a.Slots[0]) | uint64(t.Backends[2*int(a.Slots[0])].Epoch)<<16
	for i := range n {
		fingerprint := r.Uint64() | 2
		if !enterFlow(t.Flows, fingerprint, now, now+1<<20) {
			continue
		}
		entered++
		for choice := range bpf.Choices {
			b := maps.BucketOf(fingerprint, choice, uint32(len(t.Flows)-1))
			for w := range t.Flows[b].Slots {
				if slot := &t.Flows[b].Slots[w]; slot.Fingerprint == fingerprint {
					slot.Meta |= target
					e := &t.Entries[int(b)*bpf.BucketSlots+w]
					e.Key.Src, e.Key.Proto, e.Target = [4]uint32{2: 0xffff0000, 3: uint32(i)}, 17, uint32(target)
				}
			}
		}
	}
	return entered
}

// TestRootDumpWhilePacketsRun: a list of 262,144 flows holds no lock while it is read, needs memory for a batch only, and
// stops no packet.
func TestRootDumpWhilePacketsRun(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	d := w.serving(t, attach.HookXDP, `
limits: {flows: 524288}
services:
- name: pool
  mode: l2dsr
  vips: [{address: "192.0.2.2", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.2.0.1"}]
`)
	d.tables.Control.Now = 1 << 30
	const flows = 262144
	if entered := fillFlows(d, flows); entered != flows {
		t.Fatalf("only %d flows have room", entered)
	}
	dump := func(each func()) (n int) {
		d.Flows(func(Flow) bool {
			n++
			if each != nil {
				each()
			}
			return true
		})
		return n
	}

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	n := dump(nil)
	alone := time.Since(began)
	runtime.ReadMemStats(&after)
	if n != flows {
		t.Fatalf("%d flows listed, want %d", n, flows)
	}
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 1<<20 {
		t.Errorf("the list allocated %d bytes for %d flows, want memory for a batch", bytes, flows)
	}

	// Packets of one flow, a frame each 10 µs at most, from before the list until after it.
	frame := frameOf(text(t, "udp 10.0.0.1:5000 > 192.0.2.2:80 csum=0 ttl=255"))
	binary.BigEndian.PutUint32(frame[14+12:], 10<<24|1)
	var sent atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		stopped <- w.host.Do(func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				const burst = 200 // TEST_RUN repeats with what the program made of the frame: a hop less each time
				if _, err := d.program(attach.HookXDP).Run(&ebpf.RunOptions{Data: frame, Repeat: burst}); err != nil {
					return err
				}
				sent.Add(burst)
			}
		})
	}()
	for sent.Load() == 0 {
		runtime.Gosched()
	}
	began = time.Now()
	from, listed := sent.Load(), false
	n = dump(func() {
		if !listed { // in the middle of the list: whatever takes the data path's lock can go on
			listed = true
			if !d.mu.TryLock() {
				t.Error("the list holds the data path's lock")
				return
			}
			d.mu.Unlock()
			d.Report()
			d.Counters()
		}
	})
	took, during := time.Since(began), sent.Load()-from
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if n < flows {
		t.Errorf("%d flows listed while packets run, want %d", n, flows)
	}
	counts := d.Counters().Services["pool"]
	if got := counts[lb.ReasonConntrack].Packets + counts[lb.ReasonMaglev].Packets; got != sent.Load() {
		t.Errorf("%d of %d packets were forwarded; %v", got, sent.Load(), counts)
	}
	t.Logf("%d flows listed in %s alone, in %s during %d packets (%.0f/s)", flows, alone, took, during, float64(during)/took.Seconds())
}

// enterFlow is table_claim and way_publish.
func enterFlow(table []bpf.Bucket, fingerprint, now, expiry uint64) bool {
	for choice := range bpf.Choices {
		b := &table[maps.BucketOf(fingerprint, choice, uint32(len(table)-1))]
		for w := range b.Slots {
			if slot := &b.Slots[w]; slot.Fingerprint == 0 || slot.Meta>>bpf.ExpiryShift <= now {
				slot.Fingerprint, slot.Meta = fingerprint, expiry<<bpf.ExpiryShift
				return true
			}
		}
	}
	return false
}
