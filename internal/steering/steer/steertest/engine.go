package steertest

import (
	"errors"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer"
)

// Engine is the reference Path: steer.Engine itself.
type Engine struct {
	// Router makes it lower the hop limit.
	Router bool

	engine *steer.Engine
}

// Traits implements Path.
func (e *Engine) Traits() Traits {
	caps := lb.AllCaps()
	caps.CrossFamily = false
	return Traits{Caps: caps, Router: e.Router, Has: []string{"clock", "hold", "exact", "rate", "malformed", "answer"}}
}

// Apply implements Path.
func (e *Engine) Apply(s *lb.Snapshot) error {
	if e.engine == nil {
		e.engine = steer.New(s, steer.Options{Router: e.Router})
		return nil
	}
	e.engine.SetSnapshot(s)
	return nil
}

// Packet implements Path.
func (e *Engine) Packet(data []byte, frame bool, now time.Duration) (Result, error) {
	var p packet.Packet
	parse := packet.Parse
	if frame {
		parse = packet.ParseFrame
	}
	var d steer.Decision
	switch err := parse(data, &p); {
	case err == nil:
		d = e.engine.Packet(&p, now)
	case errors.Is(err, packet.ErrNotIP):
		d = e.engine.NotIP()
	default:
		d = e.engine.Malformed()
	}
	r := Result{Action: d.Action, Reason: d.Reason, Mark: d.Mark}
	if d.Service != nil {
		r.Service = d.Service.Name
	}
	if d.Backend != nil {
		r.Backend = d.Backend.Name
	}
	if d.Action != lb.Forward && d.Action != lb.Answer {
		return r, nil
	}
	egress := steer.Egress{
		Source4: Source4(), Source6: Source6(), Router: e.Router,
		HashKey: e.engine.Snapshot().HashKey,
	}
	if d.Action == lb.Answer {
		r.Out = egress.Answer(nil, &p)
		return r, nil
	}
	r.Out = egress.Append(nil, &p, d)
	return r, nil
}
