package nfqueue

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

func flowsOf(d *Datapath) (all []Flow) {
	d.Flows(func(f Flow) bool { all = append(all, f); return true })
	return all
}

const floodSpec = `maglev_size: 251
limits: {flows: %d}
services:
- name: pool
  mode: mark
  vips:
  - {address: "192.0.2.1", protocol: udp, port: 5684}
  - {address: "192.0.2.1", protocol: tcp, port: 5684}
  backends:
  - {name: a, mark: 101}
  - {name: b, mark: 102}
%s`

// flooder gives packets of many clients to the only worker, in virtual time.
type flooder struct {
	t        *testing.T
	clock    clock
	d        *Datapath
	queue    *memoryQueue
	udp, syn []byte
}

func newFlooder(t *testing.T, flows int) *flooder {
	f := &flooder{t: t}
	d, queues := openMemory(t, Config{Now: f.clock.Now}, 1)
	f.d, f.queue = d, queues[0]
	f.udp = ip(t, "udp 10.0.0.0:5000 > 192.0.2.1:5684 payload=10 csum=0")[0]
	f.syn = ip(t, "tcp 10.0.0.0:5000 > 192.0.2.1:5684 flags=syn")[0]
	f.apply(fmt.Sprintf(floodSpec, flows, ""))
	return f
}

func (f *flooder) apply(spec string) {
	f.t.Helper()
	if err := f.d.Apply(compile(f.t, spec)); err != nil {
		f.t.Fatal(err)
	}
}

// give pushes one packet of a client and returns its mark.
func (f *flooder) give(data []byte, source uint32, port uint16) uint32 {
	binary.BigEndian.PutUint32(data[12:], source)
	binary.BigEndian.PutUint16(data[20:], port)
	id := f.queue.push(data, 0)
	step(f.t, f.d)
	v := f.queue.verdict(id)
	f.queue.writes = f.queue.writes[:0]
	if v == nil || v.Drop {
		f.t.Fatalf("client %d port %d: verdict %+v", source, port, v)
	}
	return v.Mark
}

// Spoofed datagrams and SYNs, for a second each at the review's rate and at ten times that: established flows keep their
// entries, and with them their backend when the table changes; all packets go on; the table keeps its bound.
func TestFloodsLeaveEstablishedFlows(t *testing.T) {
	for _, rate := range []int{12_000, 120_000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			const flows, clients = 4096, 60
			f := newFlooder(t, flows)
			marks := map[uint32]uint32{}
			for c := range uint32(clients) {
				source := 10<<24 | c
				marks[source] = f.give(f.udp, source, 5000)
				f.give(f.udp, source, 5000) // the second packet proves it
			}
			for i := range rate {
				f.clock.set(time.Second + time.Duration(i)*time.Second/time.Duration(rate))
				if i%2 == 0 {
					f.give(f.udp, 11<<24|uint32(i), uint16(i))
				} else {
					f.give(f.syn, 11<<24|uint32(i), uint16(i))
				}
			}
			if n := f.d.Stats().Tables; n.Flows > flows || n.FlowsRefused > 0 {
				t.Errorf("%+v", n)
			}
			f.apply(fmt.Sprintf(floodSpec, flows, "  - {name: c, mark: 103}\n  - {name: d, mark: 104}\n"))
			for source, mark := range marks {
				if got := f.give(f.udp, source, 5000); got != mark {
					t.Errorf("the flow of client %d moved from %d to %d", source, mark, got)
				}
			}
		})
	}
}

// Workers serve their queues between the steps of a dump and of statistics: a packet that comes in the middle of either
// is answered before it ends.
func TestDumpsDoNotStopWorkers(t *testing.T) {
	const flows = 5000
	f := newFlooder(t, 1<<14)
	for i := range uint32(flows) {
		f.give(f.udp, 10<<24|i, 5000)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.d.Run(ctx) }()
	seen := map[string]int{}
	answered := 0
	f.d.Flows(func(flow Flow) bool {
		if seen[flow.Client.String()]++; len(seen)%1000 == 0 {
			// Of a flow that is there, and of a new one.
			for _, port := range []uint16{5000, uint16(6000 + len(seen)/1000)} {
				data := append([]byte(nil), f.udp...)
				binary.BigEndian.PutUint32(data[12:], 10<<24|7)
				binary.BigEndian.PutUint16(data[20:], port)
				f.queue.awaitVerdict(f.queue.push(data, 0))
				answered++
			}
			if err := f.d.Apply(compile(t, fmt.Sprintf(floodSpec, 1<<14, ""))); err != nil {
				t.Error(err)
			}
		}
		return true
	})
	if s := f.d.Stats(); s.pause.Count() < flows/flowsPerStep {
		t.Errorf("%d pauses were counted", s.pause.Count())
	}
	if answered < 8 {
		t.Errorf("%d packets were answered during the dump", answered)
	}
	for i := range uint32(flows) {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 10<<24|i)
		client := fmt.Sprintf("%d.%d.%d.%d:5000", a[0], a[1], a[2], a[3])
		if seen[client] != 1 {
			t.Errorf("the flow of %s was listed %d times", client, seen[client])
		}
	}
	for client, n := range seen {
		if n > 1 {
			t.Errorf("%s was listed %d times", client, n)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Statistics of thousands of rows are copied in steps that are bounded, and are complete.
func TestStatsInSteps(t *testing.T) {
	const backends = 1500
	var spec strings.Builder
	spec.WriteString("maglev_size: 251\nservices:\n")
	for s := range 3 {
		fmt.Fprintf(&spec, "- name: s%d\n  mode: mark\n  flows: [{name: r%d, priority: %d, protocols: [udp], destinations: [192.0.2.%d/32]}]\n  backends:\n", s, s, s+1, s+1)
		for b := range backends / 3 {
			fmt.Fprintf(&spec, "  - {name: b%d, mark: %d}\n", b, 1+s*1000+b)
		}
	}
	d, queues := openMemory(t, Config{Batch: 512}, 1)
	if err := d.Apply(compile(t, spec.String())); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		queues[0].push(ip(t, fmt.Sprintf("udp 10.0.0.%d:5000 > 192.0.2.%d:5684", 1+i%200, 1+i%3))[0], 0)
	}
	step(t, d)
	s := d.Stats()
	sum := uint64(0)
	for _, b := range s.Backends {
		sum += b.Packets
	}
	if len(s.Backends) != backends || sum != 300 || len(s.Services) != 3 || len(s.Rules) != 3 {
		t.Errorf("%d backends, %d packets, %d services, %d rules", len(s.Backends), sum, len(s.Services), len(s.Rules))
	}
	for i, rule := range s.Rules {
		if n := s.Services[rule.Service][lb.ReasonMaglev] + s.Services[rule.Service][lb.ReasonConntrack]; n != 100 || rule.Packets == 0 {
			t.Errorf("rule %d: %+v; its service: %d", i, rule, n)
		}
	}
	var r rows
	steps := 0
	for from, last := 0, false; !last; last = from == 0 {
		r = rows{}
		from = d.workers[0].countRows(&r, from)
		if n := len(r.services) + len(r.backends) + len(r.rules); n > rowsPerStep {
			t.Errorf("step %d copies %d rows", steps, n)
		}
		steps++
	}
	if want := (backends + 6 + rowsPerStep - 1) / rowsPerStep; steps != want {
		t.Errorf("%d steps, want %d", steps, want)
	}
}

// One step of a dump of a full table, which must stay far below 1 ms.
func BenchmarkFlowsStep(b *testing.B) {
	d, _ := openMemory(b, Config{}, 1)
	if err := d.Apply(compile(b, fmt.Sprintf(floodSpec, 1<<18, ""))); err != nil {
		b.Fatal(err)
	}
	w := d.workers[0]
	data := ip(b, "udp 10.0.0.0:5000 > 192.0.2.1:5684 payload=10 csum=0")[0]
	for i := range uint32(1 << 18) {
		binary.BigEndian.PutUint32(data[12:], 10<<24|i)
		if packet.Parse(data, &w.parsed) == nil {
			w.engine.Packet(&w.parsed, 0)
		}
	}
	steps := 0
	b.ResetTimer()
	for b.Loop() {
		d.Flows(func(Flow) bool { return true })
		steps += 1 << 18 / flowsPerStep
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps), "ns/step")
}
