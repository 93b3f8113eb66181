package vrrp

import (
	"net/netip"
	"time"
)

// State of a virtual router on this machine (section 6.4).
type State uint8

const (
	Down   State = iota // takes no part: Initialize in the RFC
	Backup              // another router has the addresses, or will have them
	Active              // this router has the addresses
)

func (s State) String() string {
	return [...]string{"down", "backup", "active"}[s]
}

// Config is what a machine needs to know of its virtual router.
type Config struct {
	Self         netip.Addr    // source of the own advertisements: on equal priorities the higher one wins
	Priority     uint8         // 1 to 255
	Interval     time.Duration // of the own advertisements, a multiple of Step
	Preempt      bool          // take over from an active router of lower priority
	PreemptDelay time.Duration // but not before this time after Start
}

// Peer is the other router that was last heard of.
type Peer struct {
	Address  netip.Addr
	Priority uint8 // 0: it gave the addresses up
	Interval time.Duration
	At       time.Time // when its advertisement came
}

// Action is what the caller of a machine has to do, in the order of the fields.
type Action struct {
	Changed   bool  // State is another one: hold the addresses, or give them up
	Advertise bool  // send an advertisement
	Priority  uint8 // of that advertisement
	Announce  bool  // tell hosts and switches where the addresses are: they may have learned another place
}

// Machine is one virtual router of one address family. It is not safe for concurrent use. The zero time of Due means that Tick
// has nothing to do.
type Machine struct {
	config   Config
	state    State
	interval time.Duration // of the active router
	due      time.Time     // Backup: takes over; Active: advertises
	sent     time.Time     // of the last advertisement
	preempts time.Time     // Config.Preempt holds from here on
	peer     Peer
}

// New returns a machine in state Down.
func New(config Config) *Machine { return &Machine{config: config} }

// State returns the state now.
func (m *Machine) State() State { return m.state }

// Peer returns the router that was last heard of; the zero value: none.
func (m *Machine) Peer() Peer { return m.peer }

// Due returns when Tick has to be called.
func (m *Machine) Due() time.Time { return m.due }

// Configure replaces the configuration and keeps the state.
func (m *Machine) Configure(config Config, now time.Time) Action {
	m.config = config
	switch {
	case m.state == Backup && config.Priority == Owner:
		return m.activate(now)
	case m.state == Backup:
		m.due = now.Add(m.downAfter())
	case m.state == Active:
		return m.advertise(now) // the next one may have to come earlier
	}
	return Action{}
}

// Start begins to take part; without effect unless the state is Down.
func (m *Machine) Start(now time.Time) Action {
	if m.state != Down {
		return Action{}
	}
	m.preempts = now.Add(m.config.PreemptDelay)
	if m.config.Priority == Owner {
		return m.activate(now)
	}
	m.interval = m.config.Interval
	m.become(Backup, now.Add(m.downAfter()))
	return Action{Changed: true}
}

// Stop ends that; an active router gives the addresses up, so that a backup takes over at once.
func (m *Machine) Stop(now time.Time) Action {
	was := m.state
	m.become(Down, time.Time{})
	if was != Active {
		return Action{Changed: was != Down}
	}
	m.sent = now
	return Action{Changed: true, Advertise: true, Priority: 0}
}

// Tick does what is due.
func (m *Machine) Tick(now time.Time) Action {
	switch {
	case m.due.IsZero() || now.Before(m.due):
		return Action{}
	case m.state == Active:
		return m.advertise(now)
	default:
		return m.activate(now)
	}
}

// Receive takes an advertisement of this virtual router that another one sent.
func (m *Machine) Receive(a Advertisement, from netip.Addr, now time.Time) Action {
	if m.state == Down || from == m.config.Self {
		return Action{}
	}
	m.peer = Peer{Address: from, Priority: a.Priority, Interval: a.Interval, At: now}
	if m.state == Backup {
		m.follow(a, now)
		return Action{}
	}
	if a.Priority > m.config.Priority || a.Priority == m.config.Priority && m.config.Self.Less(from) {
		m.interval = a.Interval
		m.become(Backup, now.Add(m.downAfter()))
		return Action{Changed: true}
	}
	// The answer makes the other router a backup, and backups wait for it (section 6.4.3). A flood must not become one of ours.
	var action Action
	if now.Sub(m.sent) >= Step {
		action = m.advertise(now)
	}
	action.Announce = true // the other router has announced the addresses, so hosts and switches look for them there
	return action
}

// follow is Receive in state Backup (section 6.4.2).
func (m *Machine) follow(a Advertisement, now time.Time) {
	switch {
	case a.Priority == 0:
		m.due = now.Add(m.skew())
	case a.Priority >= m.config.Priority || !m.config.Preempt || now.Before(m.preempts):
		m.interval = a.Interval
		m.due = now.Add(m.downAfter())
	}
}

func (m *Machine) activate(now time.Time) Action {
	m.interval = m.config.Interval
	m.become(Active, time.Time{})
	action := m.advertise(now)
	action.Changed, action.Announce = true, true
	return action
}

func (m *Machine) advertise(now time.Time) Action {
	m.sent, m.due = now, now.Add(m.config.Interval)
	return Action{Advertise: true, Priority: m.config.Priority}
}

func (m *Machine) become(state State, due time.Time) { m.state, m.due = state, due }

// skew is less for higher priorities, so that the best backup is the first (section 6.1).
func (m *Machine) skew() time.Duration {
	return time.Duration(256-int(m.config.Priority)) * m.interval / 256
}

func (m *Machine) downAfter() time.Duration { return 3*m.interval + m.skew() }
