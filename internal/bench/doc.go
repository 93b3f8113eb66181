// Package bench measures what a path costs: the same load directly, through Weir, and through what people use today.
//
// It runs programs (our own binary among them) and reads what the kernel says they spent; it does not call Weir's
// packages. The processor time of a user-space proxy is that of its processes. A kernel path (iptables) has no
// process: its cost is what all processes of the run spend more than without it. That figure is given for each path,
// so the two can be compared.
//
// [Scenario] is a row of one table: the name of a scenario, and how its results become tables, pictures and text. [WriteText]
// and [WriteReport] read that table and know no scenario by name. A new scenario is one row, and a function that returns
// [measure.Result] values.
//
// Scenarios of paths and loads ([DSR], [Live], [NFQueue]) share one grid: it sets up each path in a network of its own, runs
// every load over every path in each round, and computes the figures, which are values, too. A path that fails is a result that
// says so. The paths take turns, round by round, so that a noisy machine disturbs all of them alike; the result is the median of
// the rounds. [Coap], [Floods], [Dump], [Soak], [Turn] and [NAT] have runs of their own on the same stage ([programs.Stage]).
//
// With root everything runs in network namespaces, else on the host's loopback, and paths that need root are skipped by name.
// When the context of a run ends, everything that was started is gone when the run returns.
package bench
