package control

import (
	"context"
	"time"

	"github.com/weir-lb/weir/internal/control/names"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// resolveTimeout bounds how long a new configuration waits for the addresses of names that are new in it. Names without an answer by then
// have no backend until there is one.
const resolveTimeout = 3 * time.Second

// resolvedLocked returns the overrides in force with the addresses of the hosts of spec, and looks those up that are new. Names of the
// spec in force stay, because the new one may be refused.
func (l *Loop) resolvedLocked(spec *lb.Spec) *lb.Overrides {
	hosts := spec.Hosts()
	if l.spec != nil {
		old := l.spec.Hosts()
		l.names.Commit(wantedNames(old), nil) // without those of a spec that was refused
		hosts = append(hosts, old...)
	}
	if len(hosts) == 0 || len(hosts) > 2*lb.MaxHosts { // Compile refuses these
		return l.overrides
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	wanted := wantedNames(hosts)
	l.names.Commit(wanted, l.names.Prepare(ctx, wanted))
	return l.overrides.WithAddresses(l.names.Addresses())
}

func wantedNames(hosts []string) names.Wanted {
	wanted := names.Wanted{}
	for _, host := range hosts {
		wanted[host] = names.DefaultRefresh
	}
	return wanted
}

// forgetNames ends the look-ups of names that the spec in force does not have.
func (l *Loop) forgetNames() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spec == nil {
		return
	}
	if hosts := l.spec.Hosts(); len(hosts) != l.names.Len() {
		l.names.Commit(wantedNames(hosts), nil)
	}
}

// renamed applies changed addresses of names. False: they could not be applied.
func (l *Loop) renamed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spec == nil {
		return true
	}
	if err := l.overrideLocked(l.overrides.WithAddresses(l.names.Addresses()), lb.FromDatapath, "", nil); err != nil {
		l.log.Error("changed addresses of names cannot be applied, the last ones stay", "error", err)
		return false
	}
	l.log.Info("addresses of names applied", "snapshot_generation", l.applied.Load().Generation)
	return true
}
