// Package bench measures what a path costs: the same load directly, through Weir, and through what people use today.
//
// It runs programs (our own binary among them) and reads what the kernel says they spent; it does not call Weir's
// packages. The processor time of a user-space proxy is that of its processes. A kernel path (iptables) has no
// process: its cost is what all processes of the run spend more than without it. That figure is given for each path,
// so the two can be compared.
//
// Roads take turns, round by round, in one run, so that a noisy machine disturbs all of them alike; the result is the
// median of the rounds. With root everything runs in a network namespace of its own, else on the host's loopback, and
// paths that need root are skipped by name.
//
// [DSR] compares paths through the kernel, each in a lab of its own, and counts the whole machine's processor time. Its
// results, like [Coap]'s, are [measure.Result] values, which [WriteReport] draws.
//
// Besides the paths there are two programs here: a UDP echo and a closed-loop UDP load of many clients, one thread
// each, which allocate nothing while they run.
package bench
