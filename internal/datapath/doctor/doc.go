// Package doctor finds settings that harm a data path in the network namespace of the calling thread, and gives a remedy for
// each. It only reads and changes nothing.
//
// Every [Finding] has a level: ok, warn (works, but worse than possible, or not always) or fail (packets are lost). A
// finding that is not ok has a remedy: a command to run, after which the finding disappears.
//
// Checks for the queue data path: the rules of package rules, rules of others that conflict with them, marks set by others,
// the programs that listen to the queues and the packets that the queues dropped, receive buffers, forwarding, reverse path
// filters, reflected marks, VIPs that are local, connection tracking (which reassembles), LRO, bridges that call iptables.
// For the kernel data path: veth pairs that lose redirected frames.
//
//	findings, err := doctor.Examine(ctx, doctor.Config{Plan: plan, Count: 4, Arguments: "-c weir.yaml --queue 0:3"})
package doctor
