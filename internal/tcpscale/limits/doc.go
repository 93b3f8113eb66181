// Package limits reads what bounds the TCP connections of this machine and says what stands in the way of N of them,
// with the command that raises it. It changes nothing.
//
//	findings := limits.Examine(limits.Read(), limits.Want{Connections: 1_000_000, BothEnds: true})
//	fits := limits.Fits(findings)
//
// [Read] takes what it can get from /proc, the cgroup (version 2) and the process's limits; what it cannot is not
// judged. [Examine] is pure.
package limits
