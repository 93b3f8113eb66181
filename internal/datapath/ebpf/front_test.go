package ebpf

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer/steertest"
)

// frontPath is the program before a queue: what leaves it without a mark is decided by a steer.Engine, as the queue's worker does.
type frontPath struct {
	path
	queue  *steertest.Engine
	marked *int // packets that the program decided
}

func (p *frontPath) Traits() steertest.Traits {
	traits := p.queue.Traits()
	traits.Caps = Caps(attach.HookTCX)
	traits.Caps.Modes = []lb.Mode{lb.Mark}
	traits.Caps.Protocols = append(traits.Caps.Protocols, lb.SCTP) // the queue's
	traits.Caps.ReservedMarks, traits.Caps.SCTPPorts = true, true
	traits.AsMark, traits.NoBytes = true, true
	return traits
}

func (p *frontPath) Apply(s *lb.Snapshot) error {
	if err := p.path.Apply(s); err != nil {
		return err
	}
	return p.queue.Apply(s)
}

func (p *frontPath) Packet(data []byte, frame bool, now time.Duration) (steertest.Result, error) {
	if strings.HasSuffix(p.t.Name(), "/fragments-table-full") {
		steertest.Refuse("what one table cannot hold, the queue's can")
	}
	if strings.HasSuffix(p.t.Name(), "/fragments-hold-expire") {
		steertest.Refuse("the program and the queue remember flows apart")
	}
	r, err := p.path.Packet(append([]byte(nil), data...), frame, now)
	if err != nil || r.Action != lb.Pass {
		if r.Action == lb.Forward {
			*p.marked++
		}
		return r, err
	}
	if r.Mark != 0 {
		p.t.Errorf("%s: passed with mark %d", r.Reason, r.Mark)
	}
	return p.queue.Packet(data, frame, now)
}

// Program and queue together decide as the queue alone would.
func TestRootCorpusBeforeQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.front = true
	defer w.close()
	marked := 0
	t.Run("corpus", func(t *testing.T) {
		steertest.Run(t, beyondFront(t), func(t *testing.T) steertest.Path {
			return &frontPath{path{t: t, w: w, hook: attach.HookTCX}, &steertest.Engine{}, &marked}
		})
	})
	if marked < 100 {
		t.Errorf("the program decided only %d packets of the corpus", marked)
	}
}

// beyondFront names the cases in other modes, and those that the fast path leaves to the queue as a whole.
func beyondFront(t *testing.T) map[string]string {
	t.Helper()
	beyond := map[string]string{
		"cid-masked": "cannot unmask CIDs", "flows-*": "has no flow rules", "tier-*": "hands no fragments to other balancers",
		"stateless*": "remembers flows", "nfqlb-*": "cannot hash as nfqlb", "fragments-table-full": "the queue's can",
		"fragments-hold-expire": "remember flows apart",
		"ttl":                   "no router", "ttl-v6": "no router",
	}
	names, err := filepath.Glob("../../steering/steer/testdata/*.txtar")
	if err != nil || len(names) < 100 {
		t.Fatalf("%d cases: %v", len(names), err)
	}
	mode := regexp.MustCompile(`(?m)^ *(?:- )?mode: (nat|l3dsr)`)
	for _, file := range names {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if mode.Match(text) && !strings.HasPrefix(name, "nfqlb-") && !strings.HasPrefix(name, "flows-") {
			beyond[name] = "cannot do mode"
		}
	}
	return beyond
}
