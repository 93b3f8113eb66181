// Package snat says how many connections a path of address translators and
// hosts can hold, and shows in virtual time how it gets there.
//
// A path is an ordered list of stages. A stage multiplexes connections over some
// header fields, its key, and has a capacity for each value of that key:
//
//	replica ──► node ──────► NAT ──────────► LB ──► server node ─► server
//	files       masquerade   azure-nat       dnat   masquerade-lb  files
//	ephemeral   azure-lb     aws-nat                conntrack      memory
//	            conntrack    gcp-nat (pool)                        accept queue
//
// [Scenario.Plan] is arithmetic: the minimum cut over that tree, which stage
// breaks first and which next, how many nodes are possible, the new connections
// per second that ports and hold-downs sustain. [Simulate] is a discrete-event
// run of the same stages in virtual time: arrivals, lifetimes, SYN retries,
// hold-down after FIN and RST, idle expiry, growth of dynamic allocations, and
// clients that keep, churn or behave as the original tester did.
//
// What vendors promise stands in one dated table, [Rules], with its sources.
//
//	plan := snat.Scenario{
//		Nodes: 2, Replicas: 2, Connections: 10000,
//		Path: []snat.StageSpec{{Kind: snat.AzureLB, IPs: 2, Ports: 8000}},
//	}.WithDefaults().Plan() // plan.Holds == 16000
//
// [Scenario.Size] turns the question round: the fewest nodes, ports and addresses
// that hold so many connections.
//
// Limits: IPv4; replicas spread evenly over nodes, connections evenly over
// destinations and, unless a simulation is configured otherwise, over servers.
// Pure: no clock, no goroutine, the same seed gives the same result.
package snat
