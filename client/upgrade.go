package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// upgradePoll is how often an upgrade looks whether the new process serves.
const upgradePoll = 10 * time.Millisecond

// Upgrade has a TURN gateway replace itself by the binary at its path, and waits until the new process serves or ctx ends. An error
// that is an [Error] means that nothing happened.
func (c *Client) Upgrade(ctx context.Context) (*v1.TurnUpgraded, error) {
	before, after, took, err := upgrade(ctx, c, c.TurnStatus, func(s *v1.TurnStatus) (int, int) { return s.PID, s.Handover.Upgrades })
	if err != nil {
		return nil, err
	}
	return &v1.TurnUpgraded{
		From: before.Version, To: after.Version, PID: after.PID, Seconds: took.Seconds(),
		Records: after.Handover.Journal.Records, Sockets: after.Handover.Sockets, Upgrades: after.Handover.Upgrades,
	}, nil
}

// UpgradeCoAP is Upgrade for `weir coap server`.
func (c *Client) UpgradeCoAP(ctx context.Context) (*v1.CoAPUpgraded, error) {
	before, after, took, err := upgrade(ctx, c, c.CoAPStatus, func(s *v1.CoAPStatus) (int, int) { return s.PID, s.Handover.Upgrades })
	if err != nil {
		return nil, err
	}
	done := &v1.CoAPUpgraded{From: before.Version, To: after.Version, PID: after.PID, Seconds: took.Seconds(), Upgrades: after.Handover.Upgrades}
	for i := range after.Listeners {
		l := &after.Listeners[i]
		done.Sessions += l.Engine.Restored
		done.Lost += l.Engine.RestoreLost
		if l.Kept != nil {
			done.Lost += uint64(l.Kept.Damaged + l.Kept.NoRoom)
		}
	}
	return done, nil
}

// upgrade requests an upgrade, and returns the status before and after it, and how long it took. process returns the id of the serving
// process, and how many upgrades there were.
func upgrade[T any](ctx context.Context, c *Client, status func(context.Context) (*T, error), process func(*T) (pid, upgrades int)) (before, after *T, took time.Duration, err error) {
	if before, err = status(ctx); err != nil {
		return nil, nil, 0, err
	}
	started := time.Now()
	if _, err := post[v1.TurnUpgradeAnswer](ctx, c, "/upgrade", nil); err != nil {
		return nil, nil, 0, fmt.Errorf("not upgraded: %w", err)
	}
	pid, upgrades := process(before)
	if after, err = next(ctx, status, process, pid); err != nil {
		return nil, nil, 0, err
	}
	if now, done := process(after); done <= upgrades {
		return nil, nil, 0, fmt.Errorf("the new binary did not come to serve: the old one is back, as process %d; its log says why", now)
	}
	return before, after, time.Since(started), nil
}

// next waits until a process other than pid answers.
func next[T any](ctx context.Context, status func(context.Context) (*T, error), process func(*T) (pid, upgrades int), pid int) (*T, error) {
	for {
		answer, err := status(ctx)
		if err == nil {
			if now, _ := process(answer); now != pid {
				return answer, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the new process does not serve; its log says why: %w", errors.Join(ctx.Err(), err))
		case <-time.After(upgradePoll):
		}
	}
}
