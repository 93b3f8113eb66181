package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// storedWorkers returns the number of workers: as many as a UDP listener has stored sockets, because the kernel
// continues to give each socket its share of the clients.
func (g *Gateway) storedWorkers(c Config) int {
	if g.options.Store != nil {
		names := g.options.Store.Names()
		for i := range c.Listeners {
			if c.Listeners[i].Protocol != UDP {
				continue
			}
			count := 0
			for slices.Contains(names, listenerName(c.Listeners[i].Name, count)) {
				count++
			}
			if count > 0 {
				return count
			}
		}
	}
	return g.options.Workers
}

// nonceKeyID is the id under which the Store has the key of nonces; no allocation has this id. With a new key, a new
// process would require a new nonce of all clients at once (438), and the rate limit would leave many of them
// unanswered.
const nonceKeyID = 0

const nonceKeySize = 32

// storedNonceKey returns the key of the previous process, or a new one.
func (g *Gateway) storedNonceKey() (key []byte) {
	k := g.options.Store
	if k != nil {
		k.Records(func(id uint64, b []byte) bool {
			if id == nonceKeyID && len(b) == nonceKeySize {
				key = slices.Clone(b)
			}
			return key == nil
		})
	}
	if key != nil {
		return key
	}
	key = make([]byte, nonceKeySize)
	_, _ = rand.Read(key) // never fails
	if k != nil {
		k.Put(nonceKeyID, key)
	}
	return key
}

// restoreLocked restores the allocations that a Store holds.
func (g *Gateway) restoreLocked() {
	shift := g.storedClock()
	if g.options.Store == nil {
		return
	}
	restored, lost := 0, 0
	var gone []uint64
	g.options.Store.Records(func(id uint64, b []byte) bool {
		if id == nonceKeyID || id >= clockID { // not an allocation
			return true
		}
		r, err := allocation.DecodeRecord(b)
		if err == nil && r.ID != id {
			err = fmt.Errorf("it is the record of %d", r.ID) // Delete would use another id
		}
		if err == nil {
			r.Shift(shift)
			err = g.restoreOneLocked(r, (*allocation.Table).Restore)
		}
		if err != nil {
			lost++
			gone = append(gone, id)
			g.options.Log.Info("a kept allocation is not taken up", "id", id, "reason", err)
			return true
		}
		restored++
		return true
	})
	for _, id := range gone {
		g.options.Store.Delete(id)
	}
	g.storeClock() // after the records have the form that the clock record describes
	if restored+lost > 0 {
		g.options.Log.Info("kept allocations are taken up", "restored", restored, "lost", lost)
	}
}

// restoreOneLocked restores one allocation at the worker that receives its client's datagrams from the kernel.
func (g *Gateway) restoreOneLocked(r allocation.Record, restore func(*allocation.Table, allocation.Record, int64) (*allocation.Allocation, error)) (err error) {
	l := g.listenerLocked(r.Listener)
	switch {
	case l == nil:
		return fmt.Errorf("there is no listener %q", r.Listener)
	case r.Path.Transport != allocation.UDP || l.transport != allocation.UDP:
		return fmt.Errorf("its connection over %v ended with the process", r.Path.Transport)
	case r.Path.Server.Port() != l.server.Port(), !l.server.Addr().IsUnspecified() && r.Path.Server.Addr() != l.server.Addr():
		return fmt.Errorf("listener %q is at %v now, not at %v", r.Listener, l.server, r.Path.Server)
	}
	r.Path.Listener = l.id
	g.runInLocked(g.workerFor(r.Path.Client), func(w *worker) { _, err = restore(w.table, r, w.now) })
	return err
}

func (g *Gateway) listenerLocked(name string) *listener {
	for _, l := range g.listeners {
		if l != nil && l.current().Name == name {
			return l
		}
	}
	return nil
}

// Export returns the record of every allocation. The allocations continue here.
func (g *Gateway) Export(ctx context.Context) (records []allocation.Record, err error) {
	g.offload.count()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.workers {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		g.runInLocked(w, func(w *worker) {
			w.flush()
			for a := range w.table.All {
				records = append(records, g.inWall(w.record(a)))
			}
		})
	}
	return records, nil
}

// ParseExport reads the output of `weir turn export` strictly, because it may come from an untrusted source.
func ParseExport(text []byte) ([]allocation.Record, error) {
	var moved struct {
		Allocations []json.RawMessage `json:"allocations"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&moved); err != nil {
		return nil, fmt.Errorf("no export of weir turn export: %w", err)
	}
	records := make([]allocation.Record, len(moved.Allocations))
	for i, raw := range moved.Allocations {
		record, err := allocation.DecodeRecord(raw)
		if err != nil {
			return nil, fmt.Errorf("allocation %d of the export: %w", i+1, err)
		}
		records[i] = record
	}
	return records, nil
}

// Import restores allocations that another gateway exported, and returns how many it restored. The error is that of
// the first allocation that was not restored. Their relay addresses must be free on this host, their users must exist
// in mode static, and the quotas and lifetimes apply to them.
func (g *Gateway) Import(ctx context.Context, records []allocation.Record) (restored int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var first error
	for i := range records {
		if err := ctx.Err(); err != nil {
			return restored, errors.Join(err, first)
		}
		r := records[i]
		r.Shift(-g.offset())
		if err := g.restoreOneLocked(r, (*allocation.Table).Import); err != nil {
			if first == nil {
				first = fmt.Errorf("restore the allocation of %v: %w", records[i].Path.Client, err)
			}
			continue
		}
		restored++
	}
	return restored, first
}
