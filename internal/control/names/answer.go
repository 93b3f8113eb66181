package names

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// Answers are the results of look-ups, by name.
type Answers map[string]answer

type answer struct {
	addresses []netip.Addr
	err       error
}

// Once looks names up once, for who only wants to know: within Timeout per 16 of them, or until ctx ends.
func Once(ctx context.Context, list []string) []v1.ResolvedName {
	answers := New(Options{}).lookup(ctx, list)
	resolved := make([]v1.ResolvedName, 0, len(list))
	for _, n := range list {
		a := answers[n]
		one := v1.ResolvedName{Name: n}
		switch {
		case a.err != nil:
			one.Error = a.err.Error()
		case len(a.addresses) == 0:
			one.Error = "no address"
		default:
			one.Addresses = canonical(a.addresses)
		}
		resolved = append(resolved, one)
	}
	return resolved
}

// canonical returns addresses sorted, once each, IPv4 unmapped, without zones.
func canonical(list []netip.Addr) []netip.Addr {
	addresses := make([]netip.Addr, len(list))
	for i := range addresses {
		addresses[i] = list[i].Unmap().WithZone("")
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses)
}

// lookup looks all names up, some concurrently.
func (s *Set) lookup(ctx context.Context, names []string) Answers {
	answers := make(Answers, len(names))
	var mu sync.Mutex
	var group sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, n := range names {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, Timeout)
			defer cancel()
			addresses, err := s.options.Lookup(ctx, n)
			mu.Lock()
			defer mu.Unlock()
			answers[n] = answer{addresses, err}
		})
	}
	group.Wait()
	return answers
}

// takeLocked stores an answer and reports whether the name's addresses have changed.
func (s *Set) takeLocked(known *name, a answer, now time.Time) bool {
	known.Lookups++
	before := known.Error
	if a.err == nil && len(a.addresses) == 0 {
		a.err = &net.DNSError{Err: "no address", Name: known.Name, IsNotFound: true}
	}
	if a.err != nil {
		known.Failures++
		known.Error = a.err.Error()
		if before == "" {
			s.options.Log.Warn("name not found, its last addresses stay", "name", known.Name, "addresses", known.Addresses, "error", a.err)
		}
		var dns *net.DNSError
		if !errors.As(a.err, &dns) || !dns.IsNotFound {
			known.gone = 0
			return false
		}
		if known.gone++; known.gone < goneAfter || len(known.Addresses) == 0 {
			return false
		}
		s.options.Log.Warn("name is gone, its addresses are closed", "name", known.Name, "addresses", known.Addresses)
		known.Addresses, known.Changed = nil, now
		return true
	}
	known.gone, known.Error, known.since = 0, "", now
	addresses := canonical(a.addresses)
	known.Dropped = max(0, len(addresses)-s.options.MaxAddresses)
	addresses = addresses[:len(addresses)-known.Dropped]
	if slices.Equal(addresses, known.Addresses) {
		return false
	}
	if known.Changed.IsZero() {
		s.options.Log.Debug("name found", "name", known.Name, "addresses", addresses)
	} else {
		s.options.Log.Info("name has other addresses", "name", known.Name, "addresses", addresses, "before", known.Addresses)
	}
	known.Addresses, known.Changed = addresses, now
	return true
}
