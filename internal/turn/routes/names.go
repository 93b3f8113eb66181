package routes

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

const (
	lookupTimeout = 3 * time.Second // timeout of one look-up
	parallel      = 16              // concurrent look-ups
	goneAfter     = 3               // number of consecutive answers "no such name" after which the addresses of a name are dropped
)

// name is what a Router knows about one DNS name.
type name struct {
	v1.TurnName
	refresh time.Duration
	next    time.Time // when it is looked up again
	gone    int       // consecutive answers "no such name"
}

// Names returns what is known about each name, sorted.
func (r *Router) Names() []v1.TurnName {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]v1.TurnName, 0, len(r.names))
	for _, n := range r.names {
		status := n.TurnName
		status.Addresses = slices.Clone(status.Addresses)
		list = append(list, status)
	}
	slices.SortFunc(list, func(a, b v1.TurnName) int { return strings.Compare(a.Name, b.Name) })
	return list
}

type answer struct {
	addresses []netip.Addr
	err       error
}

// lookup looks all names up, some concurrently.
func (r *Router) lookup(ctx context.Context, names []string) map[string]answer {
	answers := make(map[string]answer, len(names))
	var mu sync.Mutex
	var group sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, n := range names {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
			defer cancel()
			addresses, err := r.options.Lookup(ctx, n)
			mu.Lock()
			defer mu.Unlock()
			answers[n] = answer{addresses, err}
		})
	}
	group.Wait()
	return answers
}

// takeLocked stores an answer and reports whether the name's addresses have changed.
func (r *Router) takeLocked(known *name, a answer, now time.Time) bool {
	known.Lookups++
	before := known.Error
	if a.err == nil && len(a.addresses) == 0 {
		a.err = &net.DNSError{Err: "no address", Name: known.Name, IsNotFound: true}
	}
	if a.err != nil {
		known.Failures++
		known.Error = a.err.Error()
		if before == "" {
			r.options.Log.Warn("name not found, its last addresses stay", "name", known.Name, "addresses", known.Addresses, "error", a.err)
		}
		var dns *net.DNSError
		if !errors.As(a.err, &dns) || !dns.IsNotFound {
			known.gone = 0
			return false
		}
		if known.gone++; known.gone < goneAfter || len(known.Addresses) == 0 {
			return false
		}
		r.options.Log.Warn("name is gone, its addresses are closed", "name", known.Name, "addresses", known.Addresses)
		known.Addresses, known.Changed = nil, now
		return true
	}
	known.gone, known.Error = 0, ""
	addresses := make([]netip.Addr, len(a.addresses))
	for i := range addresses {
		addresses[i] = a.addresses[i].Unmap().WithZone("")
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	addresses = slices.Compact(addresses)
	known.Dropped = max(0, len(addresses)-MaxAddresses)
	addresses = addresses[:len(addresses)-known.Dropped]
	if slices.Equal(addresses, known.Addresses) {
		return false
	}
	if known.Changed.IsZero() {
		r.options.Log.Debug("name found", "name", known.Name, "addresses", addresses)
	} else {
		r.options.Log.Info("name has other addresses", "name", known.Name, "addresses", addresses, "before", known.Addresses)
	}
	known.Addresses, known.Changed = addresses, now
	return true
}
