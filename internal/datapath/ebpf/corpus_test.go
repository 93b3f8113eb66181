package ebpf

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer/steertest"
)

// path runs the corpus through BPF_PROG_TEST_RUN.
type path struct {
	t    *testing.T
	d    *Datapath
	hook Hook
	w    *world
}

func (p *path) Traits() steertest.Traits {
	return steertest.Traits{Caps: Caps(p.hook), Router: true, Has: []string{"clock", "hold", "exact", "rate", "malformed"}}
}

func (p *path) Apply(s *lb.Snapshot) error {
	if err := p.d.Apply(s); err != nil {
		return err
	}
	p.w.hops(p.d)
	return nil
}

func (p *path) Packet(data []byte, frame bool, now time.Duration) (steertest.Result, error) {
	return p.w.packet(p.d, data, frame, now)
}

func TestRootCorpusXDP(t *testing.T) { corpus(t, HookXDP) }
func TestRootCorpusTCX(t *testing.T) { corpus(t, HookTCX) }

func corpus(t *testing.T, hook Hook) {
	w := newWorld(t)
	steertest.Run(t, func(t *testing.T) steertest.Path {
		d := openManual(t, hook)
		return &path{t: t, d: d, hook: hook, w: w}
	})
}
