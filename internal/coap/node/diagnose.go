package node

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/resource"
)

// diagnosePeriod is how old the counters of /diagnose may be. A worker cannot wait for those of the others while it answers.
const diagnosePeriod = time.Second

// diagnosis are the counters that /diagnose shows: of the node and of each listener.
type diagnosis struct {
	latest atomic.Pointer[[]group]
}

// group is the counters of one listener.
type group struct {
	name   string
	fields []field
}

// follow reads the counters until ctx ends.
func (d *diagnosis) follow(ctx context.Context, n *Node) {
	ticker := time.NewTicker(diagnosePeriod)
	defer ticker.Stop()
	for {
		groups := groupsOf(n.Status())
		d.latest.Store(&groups)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// groupsOf lists the counters of a status by their names in its JSON.
func groupsOf(s Status) (groups []group) {
	for i := range s.Listeners {
		l := &s.Listeners[i]
		g := group{name: l.URI}
		g.add("exchange", l.Exchange)
		g.add("resources", l.Resources)
		g.add("oscore", l.OSCORE)
		if l.Streams != nil {
			g.add("streams", *l.Streams)
		} else {
			g.add("engine", l.Engine)
		}
		groups = append(groups, g)
	}
	return groups
}

// add lists the whole numbers of a struct.
func (g *group) add(prefix string, counters any) {
	v := reflect.ValueOf(counters)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		switch f := v.Field(i); {
		case f.CanInt():
			g.fields = append(g.fields, field{prefix + "." + name, int(f.Int())})
		case f.CanUint():
			g.fields = append(g.fields, field{prefix + "." + name, int(f.Uint())}) //nolint:gosec // counters
		}
	}
}

// serveDiagnose answers with the counters of all listeners; below /diagnose with those of one, by its number.
func (l *listener) serveDiagnose(r *resource.Request) {
	format, ok := r.Accepts(message.Text, message.JSON, message.CBOR)
	if !ok || !r.NoQuery() {
		return
	}
	groups := l.diagnosis.latest.Load()
	if groups == nil {
		r.Error(message.ServiceUnavailable, "the counters were not read yet")
		return
	}
	shown := *groups
	if name, below := strings.CutPrefix(string(r.Path), "/diagnose/"); below {
		i, ok := numberOf(name, 0, len(shown)-1)
		if !ok {
			r.Error(message.NotFound, "no such listener")
			return
		}
		shown = shown[i : i+1]
	}
	head := []field{{"systemstart", int(l.extended.start.UnixMilli())}, {"max-sessions", l.cfg.MaxSessions}}
	if l.nodeID != nil {
		head = append(head, field{"node-id", int(*l.nodeID)})
	}
	r.Answer(message.Content, format, renderGroups(format, head, shown))
}

func renderGroups(format message.Format, head []field, groups []group) []byte {
	switch format {
	case message.JSON:
		b := renderJSON(head)
		b = b[:len(b)-1]
		for _, g := range groups {
			name, _ := json.Marshal(g.name) // a string always encodes
			b = append(append(append(append(b, ','), name...), ':'), renderJSON(g.fields)...)
		}
		return append(b, '}')
	case message.CBOR:
		b := cborHead(nil, 5, uint64(len(head)+len(groups)))
		for _, f := range head {
			n, _ := f.value.(int)
			b = cborHead(cborText(b, f.name), 0, uint64(n)) //nolint:gosec // counters
		}
		for _, g := range groups {
			b = append(cborText(b, g.name), renderCBOR(g.fields)...)
		}
		return b
	}
	b := render(message.Text, "", head)
	for _, g := range groups {
		b = append(append(append(b, "\n\n"...), g.name...), '\n')
		b = append(b, render(message.Text, "", g.fields)...)
	}
	return b
}
