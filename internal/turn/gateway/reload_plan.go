package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/keyerror"
)

// plan determines what a change requires and whether it is possible. It opens nothing.
func (g *Gateway) plan(to Config) (*reload, error) {
	r := &reload{g: g, to: to, change: v1.TurnChange{Ended: map[string]int{}}}
	g.mu.Lock()
	r.match()
	first, err := len(g.listeners), g.roomLocked(&to, len(r.opened))
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := r.certificates(time.Now()); err != nil {
		return nil, err
	}
	ids := map[string]uint16{}
	for i := range r.continued {
		ids[r.continued[i].config.Name] = r.continued[i].id
	}
	for i := range r.opened {
		ids[r.opened[i].config.Name] = uint16(first + i) // openListenerLocked numbers them in this order
	}
	g.mu.Lock()
	spec, err := to.routes(func(name string) uint16 { return ids[name] }, g.clusterLocked)
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	r.routes, err = g.router.Prepare(ctx, spec)
	return r, err
}

// roomLocked checks that there are enough ids for new listeners and clusters. Ids are not reused.
func (g *Gateway) roomLocked(to *Config, opened int) error {
	clusters := len(g.clusters)
	for i := range to.Clusters {
		if _, known := g.clusters[to.Clusters[i].Name]; !known {
			clusters++
		}
	}
	if len(g.listeners)+opened > listenerIDs || clusters >= clusterIDs {
		return keyerror.Errorf("listeners", "this process has had %d listeners and %d clusters with names of their own; restart it", len(g.listeners), len(g.clusters))
	}
	return nil
}

// match divides the listeners into those that continue, those to open and those to close.
func (r *reload) match() {
	var begin []openedListener
	rest := slices.DeleteFunc(slices.Clone(r.g.listeners), func(l *listener) bool { return l == nil })
	for i, config := range r.to.Listeners {
		at := slices.IndexFunc(rest, func(l *listener) bool { return sameSocket(&l.config, &config) })
		if at < 0 {
			begin = append(begin, openedListener{index: i, config: config})
			continue
		}
		r.continued = append(r.continued, continuedListener{listener: rest[at], config: config})
		rest = slices.Delete(rest, at, at+1)
	}
	r.closed = rest
	for i := range begin {
		for _, l := range r.closed {
			if overlap(&begin[i].config, &l.config) {
				begin[i].blocking = append(begin[i].blocking, l)
			}
		}
	}
	// Listeners whose address is free come first: up to there, an undo ends no allocations.
	slices.SortStableFunc(begin, func(a, b openedListener) int { return min(len(a.blocking), 1) - min(len(b.blocking), 1) })
	r.opened = begin
	r.name()
}

// name fills in the listener names of a change.
func (r *reload) name() {
	old := map[string]bool{}
	for _, l := range r.closed {
		old[l.current().Name] = true
	}
	for i := range r.opened {
		name := r.opened[i].config.Name
		if old[name] {
			r.change.Restarted = append(r.change.Restarted, name)
			delete(old, name)
		} else {
			r.change.Added = append(r.change.Added, name)
		}
	}
	for _, l := range r.closed {
		if name := l.current().Name; old[name] {
			r.change.Removed = append(r.change.Removed, name)
		}
	}
	if !slices.Equal(r.g.config.Offload.Interfaces, r.to.Offload.Interfaces) || r.g.config.Offload.Mode != r.to.Offload.Mode {
		r.change.Notes = append(r.change.Notes, "offload: a change takes effect at the next start")
	}
}

func sameSocket(a, b *ListenerConfig) bool {
	return a.Protocol == b.Protocol && a.Address == b.Address && a.Port == b.Port
}

// overlap reports whether two listeners cannot be open at the same time.
func overlap(a, b *ListenerConfig) bool {
	taken := b.sockets()
	return slices.ContainsFunc(a.sockets(), func(s string) bool { return slices.Contains(taken, s) })
}

// certificates reads the new certificates, so that an invalid one fails the reload before anything is changed.
func (r *reload) certificates(now time.Time) error {
	for i := range r.continued {
		k := &r.continued[i]
		if !k.config.Protocol.Secure() || k.config.SelfSigned && k.current().SelfSigned {
			continue
		}
		certificate, err := k.config.certificate(now)
		if err != nil {
			return keyerror.At(fmt.Sprintf("listeners[%d]", r.index(k.config.Name)), err)
		}
		if shown := k.shownCertificate(); shown == nil || !slices.EqualFunc(shown.Certificate, certificate.Certificate, slices.Equal) {
			k.certificate = certificate
			r.change.Certificates = append(r.change.Certificates, k.config.Name)
		}
	}
	for i := range r.opened {
		o := &r.opened[i]
		if !o.config.Protocol.Secure() {
			continue
		}
		if _, err := o.config.certificate(now); err != nil {
			return keyerror.At(fmt.Sprintf("listeners[%d]", o.index), err)
		}
	}
	return nil
}

func (r *reload) index(name string) int {
	return slices.IndexFunc(r.to.Listeners, func(l ListenerConfig) bool { return l.Name == name })
}
