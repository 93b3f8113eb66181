package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// movePoll is how often a drain looks whether sessions are left.
const movePoll = 50 * time.Millisecond

// DrainCoAP has the cluster nodes of a CoAP server move their DTLS sessions to other nodes, and waits until none is left or ctx ends. to is
// the node that takes them; nil: the one with the fewest sessions that has room for them. The server goes on to forward what comes for these sessions, and to move
// sessions that clients make meanwhile, until UndrainCoAP.
func (c *Client) DrainCoAP(ctx context.Context, to *uint32) (*v1.CoAPMoved, error) {
	query := url.Values{}
	if to != nil {
		query.Set("to", strconv.FormatUint(uint64(*to), 10))
	}
	return c.move(ctx, "/drain", query, func(m *v1.CoAPMoves) bool { return m.Draining && m.Drained })
}

// UndrainCoAP ends DrainCoAP. The sessions return by themselves.
func (c *Client) UndrainCoAP(ctx context.Context) (*v1.CoAPMoved, error) {
	return c.move(ctx, "/undrain", nil, func(m *v1.CoAPMoves) bool { return !m.Draining })
}

// CoAPOwners follows which node of a cluster has which sessions, as one node sees it. It calls each with the state now, at each change, and
// every v1.OwnersEvery, until each returns an error or ctx ends; then it returns that error, or nil.
func (c *Client) CoAPOwners(ctx context.Context, each func(*v1.CoAPOwners) error) error {
	return c.Stream(ctx, "/owners", nil, func(text []byte) (bool, error) {
		var line v1.CoAPOwners
		if err := json.Unmarshal(text, &line); err != nil {
			return false, fmt.Errorf("a line of the owners: %w", err)
		}
		return true, each(&line)
	})
}

// move requests a change, and waits until every node has done it.
func (c *Client) move(ctx context.Context, path string, query url.Values, done func(*v1.CoAPMoves) bool) (*v1.CoAPMoved, error) {
	started := time.Now()
	before, err := post[v1.CoAPMoved](ctx, c, path, query)
	if err != nil {
		return nil, err
	}
	for {
		status, err := c.CoAPStatus(ctx)
		if err != nil {
			return nil, err
		}
		now, all, cause := v1.CoAPMoved{}, true, ""
		for i := range status.Listeners {
			if m := status.Listeners[i].Moves; m != nil {
				all = all && done(m)
				now.Moved, now.Lost, now.Left = now.Moved+m.Out, now.Lost+m.Lost, now.Left+m.Sessions+m.Transit
				cause = m.Cause
			}
		}
		if all {
			now.Moved, now.Lost, now.Seconds = now.Moved-before.Moved, now.Lost-before.Lost, time.Since(started).Seconds()
			return &now, nil
		}
		select {
		case <-ctx.Done():
			if cause == "" {
				cause = "it goes on; weir coap cluster undrain ends it"
			}
			return nil, fmt.Errorf("%d sessions are left: %s: %w", now.Left, cause, errors.Join(ctx.Err()))
		case <-time.After(movePoll):
		}
	}
}
