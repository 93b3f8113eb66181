package bench

import (
	"context"
	"os/exec"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// sessionsOutcome is what a run of CoAP clients ended with.
type sessionsOutcome struct {
	stats v1.CoAPBenchStats
	err   error
}

// floodDTLS has clients with connection ids that move, sessions that sleep, and new handshakes.
func (r *floodRun) floodDTLS(ctx context.Context) (offered, reached float64, err error) {
	uri := "coaps://" + r.entry.String() + "/benchmark?rlen=40"
	slept := r.sleep()
	moverCtx, stopMovers := context.WithCancel(ctx)
	defer stopMovers()
	wake := slept + r.config.Duration + moveWait
	sleepers := coapBench(r.config.Binary, uri, floodSleepers, "--requests", "2", "--interval", wake.String(), "--quiet")
	started := time.Now()
	moved, woken := r.begin(moverCtx, r.movers(uri)), r.begin(ctx, sleepers)
	var cid []byte
	if r.flood.name == attackForged {
		if err := programs.Sleep(ctx, 2*moveRetry+time.Second); err != nil { // the sleepers have fallen silent: it is one of the movers
			return 0, 0, err
		}
		if cid, err = r.observe(ctx); err != nil {
			return 0, 0, err
		}
	}
	if err := programs.Sleep(ctx, slept); err != nil {
		return 0, 0, err
	}
	var handshakes Handshakes
	err = during(func() (err error) {
		if r.flood.name == floodIdentity {
			offered, reached, err = r.oneIdentity(ctx, uri)
			return err
		}
		offered, reached, err = r.send(ctx, cid)
		return err
	}, func() (err error) {
		handshakes, err = r.handshakes(ctx)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	if err := programs.Sleep(ctx, moveWait); err != nil {
		return 0, 0, err
	}
	if r.target.certificates {
		r.clients.signatures = uint64(r.counter(ctx, "signatures"))
	}
	r.clients.movesDue = floodMovers * uint64(max(0, time.Since(started)/moveEvery-1))
	stopMovers()
	m := <-moved
	r.countSessions(&m.stats, <-woken, handshakes)
	return offered, reached, m.err
}

// sleep is how long sessions have been silent when the flood begins.
func (r *floodRun) sleep() time.Duration {
	switch {
	case r.config.Quick:
		return time.Second
	case r.flood.name != floodIdentity:
		return min(floodSleep, 2*time.Second) // only that flood evicts by idle time
	}
	return floodSleep
}

// begin runs CoAP clients; the channel has their outcome at their end.
func (r *floodRun) begin(ctx context.Context, cmd *exec.Cmd) <-chan sessionsOutcome {
	outcome := make(chan sessionsOutcome, 1)
	go func() {
		stats, err := coapResult(ctx, r.Running, r.Host("clients"), cmd)
		outcome <- sessionsOutcome{stats, err}
	}()
	return outcome
}

// movers is the command of clients that change their address again and again.
func (r *floodRun) movers(uri string) *exec.Cmd {
	cmd := coapBench(r.config.Binary, uri, floodMovers, "--requests", "1000000000", "--interval", "500ms", "--rebind-every", moveEvery.String(), "--ack-timeout", moveRetry.String(), "--no-stop", "--quiet")
	for _, source := range floodsSources {
		cmd.Args = append(cmd.Args, "--from", source.String())
	}
	return cmd
}

// countSessions counts what sessions that moved, sessions that slept and new handshakes lost.
func (r *floodRun) countSessions(moved *v1.CoAPBenchStats, woken sessionsOutcome, handshakes Handshakes) {
	c := &r.clients
	c.newOK, c.newAll = handshakes.OK, handshakes.All
	c.moved, c.movedLost = moved.Rebinds, moved.LostSessions+moved.Rehandshakes+moved.Lost+moved.Failed
	c.asleep = floodSleepers
	c.kept = floodSleepers - min(floodSleepers, woken.stats.LostSessions+woken.stats.Lost+woken.stats.Failed+woken.stats.HandshakeErrors)
	c.sent, c.repeated = moved.Requests, moved.Retransmissions
	if woken.err != nil { // its first request failed, or its clients could not begin
		c.kept = 0
		c.why = append(c.why, woken.err.Error())
	}
	if handshakes.Why != "" {
		c.why = append(c.why, handshakes.Why)
	}
}
