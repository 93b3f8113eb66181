package client

import (
	"context"
	"encoding/json"
	"io"
	"net/url"

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
