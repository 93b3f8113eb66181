// Package announce decides which prefixes this balancer announces, and lets drivers do it:
//
//	lb.Snapshot (spec, health, overrides) ─┐
//	data path attached?                    ├─ Decide ─► []Route ─► Driver: announce/bgp, …
//	phase: serving, leaving, gone          ─┘
//
// Decide is a pure function. [Announcer] calls it at each change of the applied snapshot, of the data path and of the phase, and gives what it
// returns to every driver. A prefix is announced while the services behind it can serve: enough healthy backends, a data path that is
// attached, a node that is not withdrawn by an operator. At a planned end the phase is first leaving, for the time that the configuration
// names, and then gone; the process ends after that, and its data path too.
package announce
