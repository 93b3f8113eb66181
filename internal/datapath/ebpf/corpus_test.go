package ebpf

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer/steertest"
)

// path runs a case of the corpus through BPF_PROG_TEST_RUN.
type path struct {
	t    *testing.T
	w    *world
	hook attach.Hook
	d    *Datapath // from the first Apply on, which names the limits
	held *holder   // likewise
}

// Traits implements steertest.Path. What the kernel cannot do is left out of
// the caps, which refuse those cases.
func (p *path) Traits() steertest.Traits {
	return steertest.Traits{Caps: Caps(p.hook), Router: true, Has: []string{"clock", "hold", "exact", "rate", "malformed", "answer"}}
}

func (p *path) Apply(s *lb.Snapshot) error {
	s = small(s)
	if p.d == nil {
		p.d = p.w.open(p.t, p.hook, s.Limits)
	}
	if err := p.d.Apply(s); err != nil {
		return err
	}
	p.w.hops(p.d)
	if p.held == nil {
		p.held = newHolder(p.d.tables, s.Limits, &p.d.heldEvicted)
	}
	return nil
}

func (p *path) Packet(data []byte, frame bool, now time.Duration) (steertest.Result, error) {
	r, err := p.w.packet(p.d, data, frame, now)
	if err == nil && (r.Action == lb.Hold || p.held.count > 0) {
		err = p.w.give(p.d, p.held)
	}
	return r, err
}

func TestRootCorpusXDP(t *testing.T) { corpus(t, attach.HookXDP) }
func TestRootCorpusTCX(t *testing.T) { corpus(t, attach.HookTCX) }

func corpus(t *testing.T, hook attach.Hook) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	t.Run("plain", func(t *testing.T) {
		steertest.Run(t, beyond(hook), func(t *testing.T) steertest.Path { return &path{t: t, w: w, hook: hook} })
	})
	// On the same data paths: it takes longer to load one for each set of limits than to run the cases.
	t.Run("tunnels", func(t *testing.T) { corpusThroughTunnels(t, w, hook) })
}

// beyond names the cases that a hook's program refuses, with a part of its error.
func beyond(hook attach.Hook) map[string]string {
	beyond := map[string]string{
		"cid-masked":             "cannot unmask CIDs",
		"sctp":                   "cannot balance sctp",
		"sctp-timeout":           "cannot balance sctp",
		"sctp-v6":                "cannot balance sctp",
		"l3dsr-golden":           "no router",
		"flows-*":                "has no flow rules",
		"flows-ping-promiscuous": "has no flow rules",
		"tier-*":                 "hands no fragments to other balancers",
		"mark-no-backend":        "sets no marks of its own",
		"mark-service-down":      "sets no marks of its own",
		"share-refused-mark":     "sets no marks of its own",
		"mark-no-service":        "sets no marks of its own",
		"unmatched":              "sets no marks of its own",
		"stateless*":             "remembers flows",
		"sctp-ports*":            "cannot balance sctp",
		"nfqlb-*":                "cannot hash as nfqlb",
	}
	if hook == attach.HookXDP { // an XDP program has no packet mark to write
		for _, name := range []string{"mark", "mark-ttl", "mark-v6", "cid-entry-mark", "flows-*", "tier-*", "share-refused-mark"} {
			beyond[name] = "cannot do mode mark"
		}
	}
	return beyond
}
