package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// TurnStatus requests the status of `weir turn gateway`.
func (c *Client) TurnStatus(ctx context.Context) (*v1.TurnStatus, error) {
	return get[v1.TurnStatus](ctx, c, "/status", nil)
}

// UserQuery selects allocations of a TURN gateway. The zero value selects all, up to the server's default limit of 1000.
type UserQuery struct {
	User      string // name; empty: any
	Listener  string // name; empty: any
	Transport string // udp, tcp, tls or dtls; empty: any
	Client    string // address or prefix, such as 192.0.2.0/24; empty: any
	Sort      string // bytes, age, expires, idle, user or client, before Limit cuts; empty: age, the oldest first
	Limit     int    // 1 to v1.MaxTurnUsers; 0: 1000
}

// Values returns the query of GET /users.
func (q *UserQuery) Values() url.Values {
	return values(q.Limit, map[string]string{
		"user": q.User, "listener": q.Listener, "transport": q.Transport, "client": q.Client, "sort": q.Sort,
	})
}

// Users requests the allocations of a TURN gateway.
func (c *Client) Users(ctx context.Context, query UserQuery) (*v1.TurnUserList, error) {
	return get[v1.TurnUserList](ctx, c, "/users", query.Values())
}

// Export requests all allocations of a TURN gateway, in the form that Import takes. It holds no secret. Its form belongs to the
// version of the gateway: store it, and do not read it.
func (c *Client) Export(ctx context.Context) (json.RawMessage, error) {
	export, err := get[json.RawMessage](ctx, c, "/allocations", nil)
	if err != nil {
		return nil, err
	}
	return *export, nil
}

// Import gives a TURN gateway the allocations of an export, at most 64 MiB. It restores as many as it can.
func (c *Client) Import(ctx context.Context, export io.Reader) (*v1.TurnImport, error) {
	answer := new(v1.TurnImport)
	if err := c.Send(ctx, "/allocations", export, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// upgradePoll is how often Upgrade looks whether the new process serves.
const upgradePoll = 10 * time.Millisecond

// Upgrade has a TURN gateway replace itself by the binary at its path, and waits until the new process serves or ctx ends. An error
// that is an [Error] means that nothing happened.
func (c *Client) Upgrade(ctx context.Context) (*v1.TurnUpgraded, error) {
	before, err := c.TurnStatus(ctx)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	if _, err := post[v1.TurnUpgradeAnswer](ctx, c, "/upgrade", nil); err != nil {
		return nil, fmt.Errorf("not upgraded: %w", err)
	}
	after, err := c.nextProcess(ctx, before.PID)
	if err != nil {
		return nil, err
	}
	if after.Handover.Upgrades <= before.Handover.Upgrades {
		return nil, fmt.Errorf("the new binary did not come to serve: the old one is back, as process %d; its log says why", after.PID)
	}
	return &v1.TurnUpgraded{
		From: before.Version, To: after.Version, PID: after.PID, Seconds: time.Since(started).Seconds(),
		Records: after.Handover.Journal.Records, Sockets: after.Handover.Sockets, Upgrades: after.Handover.Upgrades,
	}, nil
}

// nextProcess waits until a process other than pid answers.
func (c *Client) nextProcess(ctx context.Context, pid int) (*v1.TurnStatus, error) {
	for {
		status, err := c.TurnStatus(ctx)
		if err == nil && status.PID != pid {
			return status, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the new process does not serve; the gateway's log says why: %w", errors.Join(ctx.Err(), err))
		case <-time.After(upgradePoll):
		}
	}
}
