package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// floodDTLS has clients with connection ids that move, sessions that sleep, and new handshakes.
func (r *floodRun) floodDTLS(ctx context.Context) (offered, reached float64, err error) {
	uri := "coaps://" + r.entry.String() + "/benchmark?rlen=40"
	slept := r.sleep()
	started := time.Now()
	movers, err := followCoapLoad(r.Stage, "clients", r.movers(uri))
	if err != nil {
		return 0, 0, err
	}
	defer movers.stop()
	wake := slept + r.config.Duration + r.wakeAfter()
	sleepers, err := followCoapLoad(r.Stage, "clients", coapBench(r.config.Binary, uri, floodSleepers, "--requests", "2", "--interval", wake.String(), "--progress", "json"))
	if err != nil {
		return 0, 0, err
	}
	defer sleepers.stop()
	if err := errors.Join(movers.started(ctx), sleepers.started(ctx)); err != nil { // the flood comes to sessions that are there
		return 0, 0, fmt.Errorf("before the flood: %w", err)
	}
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
	if err := r.lastAnswers(ctx, movers); err != nil {
		return 0, 0, err
	}
	if r.target.certificates {
		r.clients.signatures = uint64(r.counter(ctx, "signatures"))
	}
	r.clients.movesDue = floodMovers * uint64(max(0, time.Since(started)/moveEvery-1))
	moved, err := movers.end(ctx)
	woken, failed := sleepers.result(ctx)
	r.countSessions(&moved.Stats, &woken.Stats, failed, handshakes)
	return offered, reached, err
}

// lastAnswers waits until every request that movers sent during the flood is answered or given up.
func (r *floodRun) lastAnswers(ctx context.Context, movers *coapLoad) error {
	end := time.Now()
	_ = until(ctx, moveWait, func() error { // what has no answer by then is waited for no longer
		if !movers.settled(end) {
			return errors.New("answers are outstanding")
		}
		return nil
	})
	return ctx.Err()
}

// wakeAfter is how long after the flood sleeping sessions are used again.
func (r *floodRun) wakeAfter() time.Duration {
	if r.config.Quick {
		return floodWait
	}
	return moveWait
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

// movers is the command of clients that change their address again and again.
func (r *floodRun) movers(uri string) *exec.Cmd {
	cmd := coapBench(r.config.Binary, uri, floodMovers, "--requests", "1000000000", "--interval", "500ms", "--rebind-every", moveEvery.String(), "--ack-timeout", moveRetry.String(), "--no-stop", "--progress", "json")
	for _, source := range floodsSources {
		cmd.Args = append(cmd.Args, "--from", source.String())
	}
	return cmd
}

// countSessions counts what sessions that moved, sessions that slept and new handshakes lost.
func (r *floodRun) countSessions(moved, woken *v1.CoAPBenchStats, failed error, handshakes Handshakes) {
	c := &r.clients
	c.newOK, c.newAll = handshakes.OK, handshakes.All
	c.moved, c.movedLost = moved.Rebinds, moved.LostSessions+moved.Rehandshakes+moved.Lost+moved.Failed
	c.asleep = floodSleepers
	c.kept = floodSleepers - min(floodSleepers, woken.LostSessions+woken.Lost+woken.Failed+woken.HandshakeErrors)
	c.sent, c.repeated = moved.Requests, moved.Retransmissions
	if failed != nil { // its first request failed, or its clients could not begin
		c.kept = 0
		c.why = append(c.why, failed.Error())
	}
	if handshakes.Why != "" {
		c.why = append(c.why, handshakes.Why)
	}
}
