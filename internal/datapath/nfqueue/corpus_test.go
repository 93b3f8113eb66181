package nfqueue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer/steertest"
)

// memoryPath runs a case of the corpus through a queue in memory.
type memoryPath struct {
	t     *testing.T
	clock clock
	d     *Datapath
	queue *memoryQueue
	as    bool
	// copyRange cuts packets as the kernel would.
	copyRange int
}

func newMemoryPath(t *testing.T, asMark bool) *memoryPath {
	p := &memoryPath{t: t, as: asMark, copyRange: DefaultCopyRange}
	var queues []*memoryQueue
	p.d, queues = openMemory(t, Config{Now: p.clock.Now}, 1)
	p.queue = queues[0]
	return p
}

// Traits implements steertest.Path. Hold: what is held is not given again, the path answers it itself.
func (p *memoryPath) Traits() steertest.Traits {
	return steertest.Traits{Caps: Caps(), AsMark: p.as, Has: []string{"clock", "hold", "exact", "rate", "malformed"}}
}

func (p *memoryPath) Apply(s *lb.Snapshot) error { return p.d.Apply(s) }

func (p *memoryPath) Packet(data []byte, frame bool, now time.Duration) (steertest.Result, error) {
	p.clock.set(now)
	length := len(data)
	if frame { // what the kernel does before the queue, but for frames of a bridge
		var parsed packet.Packet
		switch err := packet.ParseFrame(data, &parsed); {
		case errors.Is(err, packet.ErrNotIP):
			return p.decide(func() uint32 { return p.pushNotIP(data) }, nil)
		case err != nil:
			return steertest.Result{}, err
		}
		data, length = parsed.Data, len(parsed.Data)
	}
	out := data[:length:length]
	if total := headerLengthOf(data); total > 0 && total < length {
		out = data[:total] // padding is cut off before the queue
	}
	return p.decide(func() uint32 { return p.queue.push(out, p.copyRange) }, out)
}

// headerLengthOf is what the IP header says of the packet's length.
func headerLengthOf(b []byte) int {
	var p packet.Packet
	if packet.Parse(b, &p) != nil {
		return 0
	}
	return p.Length
}

func (p *memoryPath) pushNotIP(data []byte) uint32 {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	return p.queue.pushLocked(Packet{NotIP: true, Data: data, Length: len(data)})
}

// decide pushes one packet and compares counters before and after, as for the kernel's queue.
func (p *memoryPath) decide(push func() uint32, out []byte) (steertest.Result, error) {
	before := p.d.Stats()
	id := push()
	step(p.t, p.d)
	v := p.queue.verdict(id)
	return resultOf(before, p.d.Stats(), v, out)
}

// resultOf finds the decision in counters. Where a first fragment released held ones, those are among the counts: they
// are later fragments to the same backend, or share its reason.
func resultOf(before, after Stats, v *Verdict, out []byte) (steertest.Result, error) {
	var r steertest.Result
	found := 0
	for i := range after.Reasons {
		reason := lb.Reason(i)
		if n := after.Reasons[i] - before.Reasons[i]; n > 0 {
			if reason == lb.ReasonFragment && sum(after.Reasons)-sum(before.Reasons) > 1 {
				continue // released
			}
			r.Reason = reason
			found++
		}
	}
	if found != 1 {
		return r, fmt.Errorf("%d reasons for one packet", found)
	}
	r.Action = r.Reason.Action()
	switch {
	case (v == nil) != (r.Action == lb.Hold):
		return r, fmt.Errorf("%s, but the verdict is %+v", r.Reason, v)
	case v != nil && v.Drop != (r.Action == lb.Drop):
		return r, fmt.Errorf("%s, but the verdict is %+v", r.Reason, *v)
	}
	for name, reasons := range after.Services {
		if reasons[r.Reason] > before.Services[name][r.Reason] {
			r.Service = name
		}
	}
	for target, n := range after.Backends {
		if n.Packets > before.Backends[target].Packets {
			r.Backend = target.Backend
		}
	}
	if v != nil && v.Marked {
		r.Mark = v.Mark
	}
	if r.Action == lb.Forward {
		r.Out = out
	}
	return r, nil
}

func sum(reasons [lb.NumReasons]uint64) (n uint64) {
	for _, r := range reasons {
		n += r
	}
	return n
}

// Every case as it stands: the modes that are beyond this path are refused by name.
func TestCorpus(t *testing.T) {
	steertest.Run(t, beyond(t, "mark"), func(t *testing.T) steertest.Path { return newMemoryPath(t, false) })
}

// The same corpus with mode l2dsr as mode mark, which decides alike.
func TestCorpusAsMark(t *testing.T) {
	steertest.Run(t, beyond(t, "mark", "l2dsr"), func(t *testing.T) steertest.Path { return newMemoryPath(t, true) })
}

// beyond names the cases that this path must refuse, each with the reason: those with a mode not among can, and those
// about routers.
func beyond(t *testing.T, can ...string) map[string]string {
	t.Helper()
	const corpus = "../../steering/steer/testdata/"
	names, err := filepath.Glob(corpus + "*.txtar")
	if err != nil || len(names) < 100 {
		t.Fatalf("%d cases: %v", len(names), err)
	}
	mode, answers := regexp.MustCompile(`(?m)^ *(?:- )?mode: ([a-z0-9]+)`), regexp.MustCompile("(?m)^need answer")
	refused := map[string]string{}
	for _, file := range names {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if answers.Match(text) {
			refused[name] = "nfqueue has no answer" // the kernel of the machine answers
			continue
		}
		for _, found := range mode.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(can, found[1]) {
				refused[name] = "the data path nfqueue cannot do mode " + found[1] + ";"
				break
			}
		}
	}
	refused["ttl"], refused["ttl-v6"] = "nfqueue has no router", "nfqueue has no router"
	return refused
}
