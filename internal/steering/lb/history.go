package lb

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// History is what a process, or another balancer, remembers of the tables that services had, so that one that starts can
// make them. It holds lists of backends, not tables, and no key.
type History struct {
	Services map[string]Past `json:"services"`
}

// Past is the history of one service.
type Past struct {
	Hashing  string       `json:"hashing"`  // fingerprint of what gives a flow its slot: key, size, affinity
	Backends []Share      `json:"backends"` // of the table in force
	Since    time.Time    `json:"since,omitzero"`
	Earlier  []Generation `json:"earlier,omitempty"`
}

// History returns what Moment.History takes.
func (s *Snapshot) History() History {
	h := History{Services: map[string]Past{}}
	for _, service := range s.Services {
		if service.KeepGenerations == 0 {
			continue
		}
		past := Past{Hashing: hashing(s, service), Since: service.tableSince, Earlier: service.Generations}
		if len(service.Maglev) > 0 {
			past.Backends = shareList(service)
		}
		h.Services[service.Name] = past
	}
	return h
}

// Check refuses what no balancer can have remembered.
func (h *History) Check() error {
	if len(h.Services) > MaxServices {
		return fmt.Errorf("%d services", len(h.Services))
	}
	for name, past := range h.Services {
		if len(past.Earlier) > maxGenerations {
			return fmt.Errorf("service %q: %d generations", name, len(past.Earlier))
		}
		for _, list := range append([]Generation{{Backends: past.Backends}}, past.Earlier...) {
			if err := checkShares(list.Backends); err != nil {
				return fmt.Errorf("service %q: %w", name, err)
			}
		}
	}
	return nil
}

func checkShares(list []Share) error {
	if len(list) > MaxBackends {
		return fmt.Errorf("%d backends", len(list))
	}
	seen := map[string]bool{}
	for _, s := range list {
		switch {
		case s.Name == "" || len(s.Name) > 63 || seen[s.Name]:
			return fmt.Errorf("backend %q", s.Name)
		case s.Weight < 0 || s.Weight > MaxWeight:
			return fmt.Errorf("backend %q has weight %d", s.Name, s.Weight)
		}
		seen[s.Name] = true
	}
	return nil
}

// hashing is the fingerprint of what a flow's slot depends on.
func hashing(snapshot *Snapshot, s *Service) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%x %d %d %d %d", snapshot.HashKey, snapshot.Hash, s.tableSize, s.Affinity, s.SCTPHash))
	return hex.EncodeToString(sum[:8])
}

// Moment is when a snapshot is compiled, and what is known of the time before. Without it no earlier table is kept.
type Moment struct {
	Now     time.Time
	History History // of services that the previous snapshot does not have
}
