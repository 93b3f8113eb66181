package nfqueue

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// An ICMP error that another queue got goes to the backend that conntrack has for the flow, also where the Maglev table
// says otherwise by now.
func TestErrorsFindTheirFlowInAnotherQueue(t *testing.T) {
	var c clock
	d, queues := openMemory(t, Config{Now: c.Now}, 3)
	only := func(name string) *lb.Snapshot {
		spec := threeBackends
		for _, other := range []string{"a, mark: 101", "b, mark: 102", "c, mark: 103"} {
			if !strings.HasPrefix(other, name) {
				spec = strings.Replace(spec, other, other+", weight: 0", 1)
			}
		}
		return compile(t, spec)
	}
	if err := d.Apply(only("a")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	push := func(queue int, line string) Verdict {
		t.Helper()
		return queues[queue].awaitVerdict(queues[queue].push(ip(t, line)[0], 0))
	}
	if v := push(0, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=10"); v.Mark != 101 {
		t.Fatalf("%+v", v)
	}
	if err := d.Apply(only("b")); err != nil {
		t.Fatal(err)
	}
	const complaint = "toobig 10.9.9.9 1300 about udp 192.0.2.1:5684 > 10.0.0.1:%d payload=100"
	for queue := range queues {
		if v := push(queue, fmt.Sprintf(complaint, 5000)); v.Mark != 101 {
			t.Errorf("queue %d: the error got mark %d, its flow has 101", queue, v.Mark)
		}
		// No one knows this flow: the table decides, once all have answered.
		if v := push(queue, fmt.Sprintf(complaint, 6000+queue)); v.Mark != 102 {
			t.Errorf("queue %d: an error about no flow got mark %d", queue, v.Mark)
		}
	}
	s := d.Stats()
	if n := s.Queues[0].Queries + s.Queues[1].Queries + s.Queues[2].Queries; n != 5 || s.Reasons[lb.ReasonICMPError] != 6 {
		t.Errorf("%d questions, want 5; reasons %v", n, s.Reasons)
	}
	if flows := flowsOf(d); len(flows) != 1 || flows[0].Backend != "a" {
		t.Errorf("flows %+v", flows)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Workers that do not answer are not waited for: errors are decided in time, and those too many at once.
func TestQuestionsEnd(t *testing.T) {
	var c clock
	d, queues := openMemory(t, Config{Now: c.Now}, 2)
	if err := d.Apply(compile(t, threeBackends)); err != nil {
		t.Fatal(err)
	}
	complain := func(n int) (ids []uint32) {
		for i := range n {
			ids = append(ids, queues[0].push(ip(t, fmt.Sprintf("toobig 10.9.9.9 1300 about udp 192.0.2.1:5684 > 10.0.0.1:%d payload=10", 5000+i))[0], 0))
		}
		return ids
	}
	ids := complain(100) // the other worker's inbox holds 16; it does not run
	step(t, d)
	for i, id := range ids {
		if waits := queues[0].verdict(id) == nil; waits != (i < 16) {
			t.Errorf("error %d waits: %v", i, waits)
		}
	}
	if p := d.workers[0].pollTimeout(); p != queryTimeout {
		t.Errorf("would sleep %s", p)
	}
	c.set(queryTimeout)
	step(t, d)
	for i, id := range ids {
		if v := queues[0].verdict(id); v == nil || !v.Marked {
			t.Errorf("error %d: %+v", i, v)
		}
	}
	// No query waits for a late answer.
	d.workers[1].inbox.Serve(d.workers[1])
	d.workers[0].inbox.Serve(d.workers[0])
	if len(queues[0].unknown) > 0 || d.workers[0].queries.count != 0 || d.workers[0].pollTimeout() != idleTimeout {
		t.Errorf("%d waiting, %d asked", len(queues[0].unknown), d.workers[0].queries.count)
	}
	// At the end nothing stays open.
	last := complain(3)
	step(t, d)
	if err := d.workers[0].finish(); err != nil {
		t.Fatal(err)
	}
	for _, id := range last {
		if v := queues[0].verdict(id); v == nil || !v.Marked {
			t.Errorf("at the end: %+v", v)
		}
	}
}
