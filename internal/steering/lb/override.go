package lb

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
)

// Override is a run-time change on top of the spec. It outlives a reload, not a restart.
type Override uint8

const (
	NoOverride    Override = iota
	OverrideUp             // takes new flows again, whatever a probe says
	OverrideDrain          // keeps old flows only
	OverrideDown           // gets nothing
)

var overrideNames = [...]string{NoOverride: "none", OverrideUp: "up", OverrideDrain: "drain", OverrideDown: "down"}

func (o Override) String() string {
	if int(o) < len(overrideNames) {
		return overrideNames[o]
	}
	return "unknown"
}

// MarshalText writes the name, for JSON.
func (o Override) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads up, drain, down or none.
func (o *Override) UnmarshalText(text []byte) error {
	for i, name := range overrideNames {
		if name == string(text) {
			*o = Override(i)
			return nil
		}
	}
	return fmt.Errorf("no override %q; write up, drain, down or none", text)
}

// Target names what an override applies to: a backend, or with Backend empty the whole service.
type Target struct {
	Service string `label:"service"`
	Backend string `label:"backend"`
}

func (t Target) String() string {
	if t.Backend == "" {
		return t.Service
	}
	return t.Service + "/" + t.Backend
}

// Overrider is who has set an override. An operator's override takes precedence over a probe's, that over what a cluster reports, and
// this over the data path's own.
type Overrider uint8

const (
	FromDatapath Overrider = iota // the data path saw that the backend is silent
	FromCluster                   // a node of the cluster drains, or has drained and ended
	FromHealth                    // an active probe
	FromOperator                  // console or admin
	overriders
)

var overriderNames = [...]string{FromDatapath: "datapath", FromCluster: "cluster", FromHealth: "health", FromOperator: "operator"}

func (o Overrider) String() string {
	if int(o) < len(overriderNames) {
		return overriderNames[o]
	}
	return "unknown"
}

// Overrides is a set of overrides: a value for Compile, changed only through With. The nil *Overrides is empty. Targets that
// the spec does not have are kept without effect: they apply when a reload brings the target back.
type Overrides struct {
	set    map[Target][overriders]Override
	owners map[string]map[string][]uint32 // by service and backend, of services that follow a cluster
	// by DNS name, of backends with a host
	addresses map[string][]netip.Addr
}

// With returns a copy with one override set (NoOverride removes it). The receiver is unchanged.
func (o *Overrides) With(t Target, from Overrider, value Override) *Overrides {
	next := o.clone()
	entry := next.set[t]
	entry[from] = value
	if entry == ([overriders]Override{}) {
		delete(next.set, t)
	} else {
		next.set[t] = entry
	}
	return next
}

// Of returns the override in force on exactly this target and who set it.
func (o *Overrides) Of(t Target) (Override, Overrider) {
	if o == nil {
		return NoOverride, FromDatapath
	}
	entry := o.set[t]
	for from := overriders; from > 0; from-- {
		if value := entry[from-1]; value != NoOverride {
			return value, from - 1
		}
	}
	return NoOverride, FromDatapath
}

// From returns what one overrider set on exactly this target.
func (o *Overrides) From(t Target, from Overrider) Override {
	if o == nil {
		return NoOverride
	}
	return o.set[t][from]
}

// All yields every target with its override in force, ordered by target.
func (o *Overrides) All() iter.Seq2[Target, Override] {
	return func(yield func(Target, Override) bool) {
		if o == nil {
			return
		}
		targets := slices.SortedFunc(maps.Keys(o.set), func(a, b Target) int {
			return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Backend, b.Backend))
		})
		for _, t := range targets {
			value, _ := o.Of(t)
			if !yield(t, value) {
				return
			}
		}
	}
}

func (o *Overrides) clone() *Overrides {
	next := &Overrides{set: map[Target][overriders]Override{}, owners: map[string]map[string][]uint32{}}
	if o != nil {
		maps.Copy(next.set, o.set)
		maps.Copy(next.owners, o.owners)
		next.addresses = o.addresses
	}
	return next
}

// WithOwners returns a copy with the owner ids of the backends of a service, by name, as its cluster reports them. Nil removes them. The
// caller does not change owned afterwards. Only services with a cluster use them, for backends that are queried.
func (o *Overrides) WithOwners(service string, owned map[string][]uint32) *Overrides {
	next := o.clone()
	if owned == nil {
		delete(next.owners, service)
	} else {
		next.owners[service] = owned
	}
	return next
}

// Owners returns what WithOwners has set; nil: nothing. The result must not be changed.
func (o *Overrides) Owners(service string) map[string][]uint32 {
	if o == nil {
		return nil
	}
	return o.owners[service]
}

// WithAddresses returns a copy with the addresses of all DNS names, which backends with a host have. The caller does not change them
// afterwards.
func (o *Overrides) WithAddresses(addresses map[string][]netip.Addr) *Overrides {
	next := o.clone()
	next.addresses = addresses
	return next
}

// Addresses returns what WithAddresses has set of a DNS name. The result must not be changed.
func (o *Overrides) Addresses(name string) []netip.Addr {
	if o == nil {
		return nil
	}
	return o.addresses[name]
}
