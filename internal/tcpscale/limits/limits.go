// Package limits reads what bounds the TCP connections of this machine and says what stands in the way of N of them,
// with the command that raises it. It changes nothing.
//
//	findings := limits.Examine(limits.Read(), limits.Want{Connections: 1_000_000, BothEnds: true})
//	limits.Fits(findings)
//
// Figures: 3.8 kB of kernel memory for a socket, 7.6 kB for a connection with both ends here.
package limits
