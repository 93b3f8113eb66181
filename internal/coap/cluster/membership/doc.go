// Package membership decides which nodes a cluster has, and at which addresses they are: a pure state machine of the ping protocol of
// Californium's clusters. Pings, pongs and the time go in; addresses to ping, events for the log, and a new list of members come out.
//
//	Spec  --Compile-->  Table  --Received, Alive, Tick-->  Output: pings, events
//	                      └--Members--> which id is where, as a value
//
// Nodes are known beforehand (Spec.Fixed), or found out by pings at known addresses (Spec.Group, Table.SetGroup), or, where the caller
// authenticates them, come from any address (Spec.Open).
//
// What is proven goes before what is claimed. A node that answers keeps its id: another address that claims it has to wait until a ping
// to the holder has been without an answer for [answerTime]. In the same way a node keeps its address when a message from there claims
// another id. So a forged ping moves no node, and a node that comes back at another address is there again after two seconds.
//
// Times are monotonic. Where the process has been stopped, or its clock jumps, no node is given up for it: between two calls at most as
// much time passes as between two ticks.
package membership
