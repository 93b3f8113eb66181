// Package lb is the model of a load balancer: what users write (Spec), what changes at run time (Overrides), and the
// immutable value that data paths execute (Snapshot).
//
//	Spec + Overrides + Caps ── Compile ──► Snapshot ──► Service 1─n VIP
//	                              │                        └──n Backend, Maglev table, owner table
//	                              └──► *Error: path, what, remedy
//
// Compile is slow, deterministic and total: it fills defaults, checks everything against everything and against what
// the data path can do, orders by name, and builds the tables. Same input, same snapshot, on every node. Reading a
// Snapshot is fast, allocates nothing and needs no lock.
//
// Decision, Action and Reason are the vocabulary of steering: each exit of each data path has exactly one Reason.
//
//	snapshot, err := lb.Compile(spec, nil, caps)
//	service, serves := snapshot.Lookup(lb.UDP, flow.Address(client), flow.Address(addr), 5684)
//
// Limits: MaxServices, MaxVIPs, MaxBackends; owner ids of at most 32 bits.
package lb
