// Package doctor looks for what spoils a data path, in the network namespace of the calling thread, and says how to
// cure it. It reads and changes nothing.
//
// Every [Finding] has a level: ok, warn (works, but worse than it could, or not always) or fail (packets are lost). One
// that is not ok has a cure: a command to type, after which the finding is gone.
//
// What is looked at for the queue data path: the rules of package rules, rules of others in their way, marks set by
// others, who listens to the queues and what they dropped, receive buffers, forwarding, reverse path filters,
// reflected marks, VIPs that are local, connection tracking (which reassembles), LRO, bridges that call iptables. For
// the kernel data path: veth pairs that lose redirected frames.
//
//	findings, err := doctor.Examine(ctx, doctor.Config{Plan: plan, Count: 4, Arguments: "-c weir.yaml --queue 0:3"})
package doctor
