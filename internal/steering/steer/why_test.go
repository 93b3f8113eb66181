package steer_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer"
	"github.com/weir-lb/weir/internal/steering/steer/steertest"
	"github.com/weir-lb/weir/internal/testbed/testbedtest"
)

// explained is the reference path of the corpus that also explains itself: each kind of decision once.
type explained struct {
	steertest.Engine
	engine *steer.Engine
	name   string
	seen   map[string]bool
	text   *strings.Builder
}

func (e *explained) Apply(s *lb.Snapshot) error {
	if e.engine == nil {
		e.engine = steer.New(s, steer.Options{})
	} else {
		e.engine.SetSnapshot(s)
	}
	return e.Engine.Apply(s)
}

func (e *explained) Packet(data []byte, frame bool, now time.Duration) (steertest.Result, error) {
	var p packet.Packet
	parse := packet.Parse
	if frame {
		parse = packet.ParseFrame
	}
	if parse(data, &p) == nil {
		d := e.engine.Packet(&p, now)
		kind := fmt.Sprint(d.Reason, p.Version, p.Kind, p.Later, d.Rule != nil, d.Mark == 0)
		if d.Service != nil {
			kind += fmt.Sprint(d.Service.Mode, d.Service.Tunnel, d.Service.Affinity, d.Service.SCTPHash, len(d.Service.VIPs), d.Service.CID != nil && len(d.Service.CID.Layouts) > 1)
		}
		if !e.seen[kind] {
			e.seen[kind] = true
			fmt.Fprintf(e.text, "%s: %s\n", e.name, p.Key)
			for _, step := range e.engine.Why(&p, d) {
				fmt.Fprintf(e.text, "\t%s\n", step)
			}
		}
	}
	return e.Engine.Packet(data, frame, now)
}

// The explanations of the packets of the corpus, each kind of decision once.
func TestWhyOfTheCorpus(t *testing.T) {
	var text strings.Builder
	seen := map[string]bool{}
	noRouter := map[string]string{"ttl": "no router", "ttl-v6": "no router"}
	steertest.Run(t, noRouter, func(t *testing.T) steertest.Path {
		return &explained{name: filepath.Base(t.Name()), seen: seen, text: &text}
	})
	testbedtest.Golden(t, "why.golden", text.String())
}
