package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/weir-lb/weir/internal/coap/cluster/replica"
	"github.com/weir-lb/weir/internal/kube/leases"
)

// Leases is the API server of Kubernetes, with a Lease for each process. The term of an entry is the resourceVersion of its Lease.
type Leases struct {
	leases *leases.Leases
}

// OpenLeases returns the store that the Leases of a cluster of nodes are.
func OpenLeases(l *leases.Leases) *Leases { return &Leases{l} }

// Close implements the store.
func (*Leases) Close() error { return nil }

// Change implements the store.
func (s *Leases) Change(ctx context.Context, c replica.Change) (replica.Entry, error) {
	holder := c.Owner
	if c.Taken {
		holder = c.By
	}
	lease, err := s.leases.Change(ctx, leaseName(c.Owner), c.Term, string(encode(&c)), fmt.Sprintf("node %d", holder.Node))
	if err != nil {
		return replica.Entry{}, err
	}
	return leaseEntry(c.Owner, &lease)
}

// Delete implements the store.
func (s *Leases) Delete(ctx context.Context, owner replica.Process, term uint64) error {
	return s.leases.Delete(ctx, leaseName(owner), term)
}

// Follow implements the store. Leases of the cluster that are none of ours are passed over.
func (s *Leases) Follow(ctx context.Context, entry func(replica.Entry)) error {
	return s.leases.Follow(ctx, func(l leases.Lease) error {
		owner, ok := parseName(strings.Replace(l.Name, "-", "/", 1))
		if !ok {
			return nil
		}
		e, err := leaseEntry(owner, &l)
		if err == nil {
			entry(e)
		}
		return err
	})
}

func leaseEntry(owner replica.Process, l *leases.Lease) (replica.Entry, error) {
	if l.Gone {
		return gone(owner, l.Revision), nil
	}
	return decode(owner, l.Revision, []byte(l.Text))
}

func leaseName(p replica.Process) string { return strings.Replace(name(p), "/", "-", 1) }
