package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// chaosEvent is a kind of event.
type chaosEvent struct {
	name, about string
	node        bool          // it happens to one node, which then has no other event
	long        time.Duration // it lasts up to so long; 0: no time
	unasked     bool          // only where it is named, or with replicated sessions: it ends sessions
	begin, end  func(c *chaos, n *chaosNode) error
}

func (e chaosEvent) describe() (name, about string) { return e.name, e.about }

func chaosEvents() []chaosEvent {
	return []chaosEvent{
		{name: "kill", about: "kill -9 of a node's serving process; its supervisor starts another one", node: true, begin: (*chaos).kill},
		{name: "upgrade", about: "SIGUSR2 to a node's supervisor: an upgrade to the same binary", node: true, begin: (*chaos).upgrade},
		{name: "drain", about: "a node moves its sessions to others, and takes them back later", node: true, long: 8 * time.Second, begin: (*chaos).drain, end: (*chaos).undrain},
		{name: "partition", about: "a node is cut off from the other nodes, not from the clients", node: true, long: 15 * time.Second, begin: (*chaos).partition, end: (*chaos).heal},
		{name: "stop", about: "SIGSTOP of a node's serving process, and SIGCONT later", node: true, long: 4 * time.Second, begin: (*chaos).pause, end: (*chaos).resume},
		{name: "clock", about: "a node ends by SIGTERM and starts with the same --state, its monotonic clock in another time namespace days off", node: true, begin: (*chaos).clock},
		{name: "nat", about: "the NAT drops the bindings of all clients", begin: (*chaos).clearNAT},
		{name: "crash", about: "kill -9 of a node with its supervisor, and its memory is gone; it starts again later", node: true, long: 8 * time.Second, unasked: true, begin: (*chaos).crash, end: (*chaos).restart},
	}
}

// ChaosEvents describes what can happen: name, tab, what it is.
func ChaosEvents() []string { return describe(chaosEvents()) }

// chaosStep is the begin or the end of an event at a time since the start of the script.
type chaosStep struct {
	at    time.Duration
	event chaosEvent
	node  int // from 0; -1: none
	ends  bool
}

func (s chaosStep) String() string {
	text := s.event.name
	if s.ends {
		text = "end of " + text
	}
	if s.node >= 0 {
		text += fmt.Sprintf(", node %d", s.node+1)
	}
	return text
}

// chaosRest is how long a node is left alone after an event.
const chaosRest = 1500 * time.Millisecond

// chaosAlone is how long all nodes are left alone after an event of one whose sessions are replicated: until they have returned from its
// buddy and all have copies again. Sessions are lost where a node and its buddy crash within that time.
const chaosAlone = 20 * time.Second

// chaosScript draws what happens from a seed: the same steps for the same seed and configuration. From an event to the next one a time
// passes of half of every to one and a half. Events overlap, but one node always has none, and no node has two. If alone is more than 0, an event
// of a node begins only so long after the end of another one.
func chaosScript(seed uint64, nodes int, duration, every, alone time.Duration, events []chaosEvent) (steps []chaosStep) {
	random := rand.New(rand.NewPCG(seed, 16)) //nolint:gosec // it is to be reproducible
	busy := make([]time.Duration, nodes)      // until when
	for at := chaosRest; ; at += every/2 + time.Duration(random.Int64N(int64(every))) {
		event := events[random.IntN(len(events))]
		length := time.Duration(0)
		if event.long > 0 {
			length = event.long/8 + time.Duration(random.Int64N(int64(event.long*7/8)))
		}
		first := random.IntN(nodes)
		if at+length+chaosRest > duration {
			if at+chaosRest > duration {
				break
			}
			continue
		}
		step := chaosStep{at: at, event: event, node: -1}
		if event.node {
			if step.node = freeNode(busy, first, at); step.node < 0 {
				continue
			}
			busy[step.node] = at + length + chaosRest
			for i := range busy {
				if alone > 0 {
					busy[i] = at + length + alone
				}
			}
		}
		steps = append(steps, step)
		if event.end != nil {
			step.at, step.ends = at+length, true
			steps = append(steps, step)
		}
	}
	slices.SortStableFunc(steps, func(a, b chaosStep) int { return int(a.at - b.at) })
	return steps
}

// freeNode is the first node from first on that has no event; -1 if only one is left without one.
func freeNode(busy []time.Duration, first int, at time.Duration) (node int) {
	node = -1
	free := 0
	for i := range busy {
		if n := (first + i) % len(busy); busy[n] <= at {
			free++
			if node < 0 {
				node = n
			}
		}
	}
	if free < 2 {
		return -1
	}
	return node
}
