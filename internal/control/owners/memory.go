package owners

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/readfile"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Memory is what nodes have reported, for the process after this one, which may start while none of them answers: by service, then by
// backend. A remembered node counts as one that answered long ago, until it answers again.
type Memory map[string]map[string]Remembered

// Remembered is the newest answer of a node.
type Remembered struct {
	Admin    string         `json:"admin"` // at another one it is another node
	IDs      []uint32       `json:"ids"`
	Owners   []v1.CoAPOwner `json:"owners,omitempty"`
	Draining bool           `json:"draining,omitempty"`
	Answers  bool           `json:"answers"`  // to the newest query
	Answered time.Time      `json:"answered"` // wall time
}

const (
	memoryFormat = 1
	maxMemory    = 16 << 20 // bytes of the file
)

type memoryFile struct {
	Format   int    `json:"format"`
	Services Memory `json:"services"`
}

// ReadMemory returns what Write has kept in a file; nil: there is no file.
func ReadMemory(path string) (Memory, error) {
	text, err := readfile.Read(path, maxMemory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var file memoryFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it", path, err)
	}
	if file.Format != memoryFormat {
		return nil, fmt.Errorf("%s: format %d is not %d, that of this version; remove it", path, file.Format, memoryFormat)
	}
	for service, nodes := range file.Services {
		for backend, n := range nodes {
			if err := n.check(); err != nil {
				return nil, fmt.Errorf("%s: backend %s of service %s: %w; remove it", path, backend, service, err)
			}
		}
	}
	return file.Services, nil
}

// check refuses what no node can have reported.
func (n *Remembered) check() error {
	if len(n.IDs) == 0 || len(n.IDs) > maxShards || len(n.Owners) > maxShards*len(n.IDs) {
		return fmt.Errorf("%d node ids and %d owners", len(n.IDs), len(n.Owners))
	}
	for _, id := range n.IDs {
		if id >= maxShards {
			return fmt.Errorf("node id %d has more than one byte", id)
		}
	}
	return nil
}

// Write replaces the file.
func (m Memory) Write(path string) error {
	text, err := json.MarshalIndent(memoryFile{memoryFormat, m}, "", " ")
	if err != nil {
		return err
	}
	return readfile.Replace(path, append(text, '\n'))
}

// Overrides adds what is remembered of a snapshot's services, so that the first generation of a process has the owners that the last one
// of the process before it had.
func (m Memory) Overrides(snapshot *lb.Snapshot, to *lb.Overrides) *lb.Overrides {
	for _, s := range snapshot.Services {
		if s.Cluster == nil {
			continue
		}
		nodes, some := m.nodes(s.Name, adminsOf(s))
		if !some {
			continue
		}
		v := viewOf(nodes)
		to = to.WithOwners(s.Name, v.owned)
		for backend, state := range v.states {
			to = to.With(lb.Target{Service: s.Name, Backend: backend}, lb.FromCluster, state)
		}
	}
	return to
}

// nodes returns all nodes of a service, and whether any of them is remembered.
func (m Memory) nodes(service string, admins map[string]string) (nodes map[string]*node, some bool) {
	nodes = map[string]*node{}
	for backend, admin := range admins {
		n := &node{}
		if known, ok := m[service][backend]; ok && known.Admin == admin {
			some = true
			n.answer = answer{ids: known.IDs, owners: known.Owners, draining: known.Draining}
			n.answers, n.old = known.Answers, true
			n.last = time.Now().Add(-max(0, time.Since(known.Answered.Round(0)))) // a wall clock that was set back counts as no time
		}
		nodes[backend] = n
	}
	return nodes, some
}

// adminsOf are the admin addresses of a service by backend.
func adminsOf(s *lb.Service) map[string]string {
	admins := map[string]string{}
	for _, b := range s.Backends {
		if b.Admin != "" {
			admins[b.Name] = b.Admin
		}
	}
	return admins
}

// Remember has a follower begin with what a process before it has kept, and pass on what changes. Call it before Follow.
func (f *Follower) Remember(memory Memory, keep func(Memory) error) {
	f.memory, f.keep = memory, keep
}

// recall enters what is remembered of a service that is new here.
func (f *Follower) recall(name string, s *service) {
	nodes, some := f.memory.nodes(name, s.admins)
	delete(f.memory, name)
	if !some {
		return
	}
	s.nodes, s.unknown, s.answered = nodes, false, time.Time{}
	for _, n := range nodes {
		if n.last.After(s.answered) {
			s.answered = n.last
		}
	}
	s.reported = viewOf(nodes) // see Memory.Overrides
}

// memorize keeps what is known of all services.
func (f *Follower) memorize() {
	if f.keep == nil {
		return
	}
	f.keeping.Lock()
	defer f.keeping.Unlock()
	err := f.keep(f.known())
	if err != nil && f.keepFailed == nil {
		f.log.Error("the owners of clusters are not kept for a restart", "error", err)
	}
	f.keepFailed = err
}

// known is what nodes have reported last.
func (f *Follower) known() Memory {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := Memory{}
	for name, s := range f.services {
		m[name] = map[string]Remembered{}
		for backend, n := range s.nodes {
			if len(n.ids) > 0 {
				m[name][backend] = Remembered{
					Admin: s.admins[backend], IDs: n.ids, Owners: n.owners, Draining: n.draining, Answers: n.answers,
					Answered: time.Now().Add(-time.Since(n.last)), // the wall time, also where the clock was set since
				}
			}
		}
	}
	return m
}
