package nfqueue

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer"
)

const keptSpec = `maglev_size: 251
limits: {flows: 64}
services:
- name: s
  mode: mark
  new_flow_rate: 1000000
  vips: [{address: 192.0.2.1, protocol: udp, port: 80}]
  backends: [{name: a, mark: 101, weight: %d}, {name: b, mark: 102}]
`

// pushFlow queues the packet of a flow and has it decided.
func pushFlow(t *testing.T, d *Datapath, q *memoryQueue, host int) Verdict {
	t.Helper()
	p, err := packet.ParseText(fmt.Sprintf("udp 10.0.0.%d:5000 > 192.0.2.1:80 01", host))
	if err != nil {
		t.Fatal(err)
	}
	q.push(p.Packets[0], 0)
	step(t, d)
	return q.writes[len(q.writes)-1][0]
}

// A data path takes over the flows of the one before, and without the file they go by the new weights. With DropFlows nothing is left.
func TestFlowsOfTheLastProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lb.flows")
	start := func(file string, weight int, drop bool) (*Datapath, *memoryQueue) {
		d, queues := openMemory(t, Config{FlowFile: file, DropFlows: drop}, 1)
		if err := d.Apply(compile(t, fmt.Sprintf(keptSpec, weight))); err != nil {
			t.Fatal(err)
		}
		return d, queues[0]
	}
	marks := map[int]uint32{}
	d, q := start(file, 100, false)
	for host := range 40 {
		marks[host] = pushFlow(t, d, q, host).Mark
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	moved := func(d *Datapath, q *memoryQueue) (n int) {
		for host, mark := range marks {
			if pushFlow(t, d, q, host).Mark != mark {
				n++
			}
		}
		return n
	}
	d, q = start(file, 0, true)
	if kept := d.Stats().Kept; kept.TookOver != 40 || kept.File != file || kept.Why != "" {
		t.Errorf("%+v", kept)
	}
	if n := moved(d, q); n != 0 {
		t.Errorf("%d flows moved", n)
	}
	// Another process cannot have the file as well: it works without.
	other, otherQueue := start(file, 0, false)
	if kept := other.Stats().Kept; kept.TookOver != 0 || !strings.Contains(kept.Why, "another process has it") {
		t.Errorf("%+v", kept)
	}
	if n := moved(other, otherQueue); n < 5 {
		t.Errorf("only %d flows move without the file: the test shows nothing", n)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 0 {
		t.Errorf("%v, %v are left", left, err)
	}
	var none [steer.NumRestored]int
	if kept := other.Stats().Kept; kept.Flows != none || kept.File != "" {
		t.Errorf("%+v", kept)
	}
}

// A flow table that becomes full is reported once, and once more after it was not full for a minute.
func TestFullTableIsReported(t *testing.T) {
	var log strings.Builder
	var now clock
	d, queues := openMemory(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Now: now.Now}, 1)
	if err := d.Apply(compile(t, fmt.Sprintf(keptSpec, 100))); err != nil {
		t.Fatal(err)
	}
	d.full.Becomes(0, 0)
	var before troubles
	reports := func(want int) {
		t.Helper()
		before = d.complain(before)
		if n := strings.Count(log.String(), `msg="flow table full`); n != want {
			t.Errorf("%d reports, want %d:\n%s", n, want, &log)
		}
	}
	host := 0
	flows := func(n int) {
		for range n {
			host++
			pushFlow(t, d, queues[0], host)
		}
	}
	flows(64)
	reports(0)
	flows(20)
	reports(1)
	flows(20)
	reports(1)
	now.set(61 * time.Second)
	flows(1)
	reports(2)
	if !strings.Contains(log.String(), "flows=64 of=64 evicted=20 refused=0 remedy=") {
		t.Error(&log)
	}
}
