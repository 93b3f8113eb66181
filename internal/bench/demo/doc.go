// Package demo shows the main job on one machine, without root and without a file: a
// user-space balancer, a cluster of CoAP/DTLS nodes and a load, all of them real
// processes of the weir binary on 127.0.0.1, disturbed while they run.
//
//	200 clients ──┬► weir nat ──┬─► node 1 ◄┐
//	(DTLS PSK, CID)│   ▲         ├─► node 2 ◄┼ cluster: a record reaches the owner of its CID
//	50 clients ───┘   │         └─► node 3 ◄┘
//	(DTLS PSK)     clear, rebalance, drain at marked moments
//
// It proves one sentence: no client with a connection ID lost its session or had to make a second handshake. The
// clients without connection IDs meet the same events and show what would be lost.
// A run whose disturbances did not happen, or did not hurt (no address changed, no
// record was forwarded), proves nothing and is reported as a failure.
//
//	result, err := demo.Run(ctx, demo.Config{Binary: "bin/weir", Out: os.Stdout})
package demo
