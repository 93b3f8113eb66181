package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/weir-lb/weir/api/v1"
)

// LBStatus requests the status of `weir lb run`. `weir nat` answers too, without what its data path adds.
func (c *Client) LBStatus(ctx context.Context) (*v1.LBStatus, error) {
	return get[v1.LBStatus](ctx, c, "/status", nil)
}

// OperatorStatus requests the status of `weir operator`.
func (c *Client) OperatorStatus(ctx context.Context) (*v1.OperatorStatus, error) {
	return get[v1.OperatorStatus](ctx, c, "/status", nil)
}

// NATStatus requests the status of `weir nat`.
func (c *Client) NATStatus(ctx context.Context) (*v1.NATStatus, error) {
	return get[v1.NATStatus](ctx, c, "/status", nil)
}

// CoAPStatus requests the status of `weir coap server`.
func (c *Client) CoAPStatus(ctx context.Context) (*v1.CoAPStatus, error) {
	return get[v1.CoAPStatus](ctx, c, "/status", nil)
}

// Routes requests the list of paths that the part serves.
func (c *Client) Routes(ctx context.Context) ([]v1.Route, error) {
	routes, err := get[[]v1.Route](ctx, c, "/routes", nil)
	if err != nil {
		return nil, err
	}
	return *routes, nil
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	answer := new(T)
	if err := c.Get(ctx, path, query, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

func post[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	answer := new(T)
	if err := c.Post(ctx, path, query, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// Drain gives a backend no new flows; its old ones stay. An empty backend means all of the service. The change lasts until Undrain
// or until the part restarts. So do those of Down and Up.
func (c *Client) Drain(ctx context.Context, service, backend string) (*v1.OverrideAnswer, error) {
	return c.override(ctx, "/drain", service, backend)
}

// Undrain takes back what Drain, Down or Up changed for the same service and backend.
func (c *Client) Undrain(ctx context.Context, service, backend string) (*v1.OverrideAnswer, error) {
	return c.override(ctx, "/undrain", service, backend)
}

// Down takes a backend out at once: its old flows go elsewhere too. An empty backend means the whole service.
func (c *Client) Down(ctx context.Context, service, backend string) (*v1.OverrideAnswer, error) {
	return c.override(ctx, "/down", service, backend)
}

// Up gives a backend new flows whatever its probe says. An empty backend means all of the service.
func (c *Client) Up(ctx context.Context, service, backend string) (*v1.OverrideAnswer, error) {
	return c.override(ctx, "/up", service, backend)
}

// Withdraw takes back everything that the balancer announces of its addresses, so that its traffic goes elsewhere, until Announce or until
// the part restarts.
func (c *Client) Withdraw(ctx context.Context) (*v1.AnnounceAnswer, error) {
	return post[v1.AnnounceAnswer](ctx, c, "/announce/withdraw", nil)
}

// Announce ends Withdraw.
func (c *Client) Announce(ctx context.Context) (*v1.AnnounceAnswer, error) {
	return post[v1.AnnounceAnswer](ctx, c, "/announce/resume", nil)
}

func (c *Client) override(ctx context.Context, path, service, backend string) (*v1.OverrideAnswer, error) {
	return post[v1.OverrideAnswer](ctx, c, path, url.Values{"service": {service}, "backend": {backend}})
}

// FlowQuery selects flows. The zero value selects all, up to the server's default limit of 1000.
type FlowQuery struct {
	Service  string // name; empty: any
	Backend  string // name; empty: any
	Protocol string // tcp, udp, sctp or icmp; empty: any
	Client   string // address or prefix, such as 192.0.2.0/24; empty: any
	State    string // plain, opening, established or closing; empty: any
	Sort     string // client, service, backend or expires, before Limit cuts; empty: no order
	Limit    int    // 1 to v1.MaxFlows, with Sort to 100000; 0: 1000
}

// Values returns the query of GET /flows.
func (q *FlowQuery) Values() url.Values {
	return values(q.Limit, map[string]string{
		"service": q.Service, "backend": q.Backend, "protocol": q.Protocol, "client": q.Client, "state": q.State, "sort": q.Sort,
	})
}

// values are the parameters of a query that are set.
func values(limit int, texts map[string]string) url.Values {
	values := url.Values{}
	for key, value := range texts {
		if value != "" {
			values.Set(key, value)
		}
	}
	if limit != 0 {
		values.Set("limit", strconv.Itoa(limit))
	}
	return values
}

// Flows requests the flows that the data path remembers.
func (c *Client) Flows(ctx context.Context, query FlowQuery) (*v1.FlowList, error) {
	return get[v1.FlowList](ctx, c, "/flows", query.Values())
}

// EachFlow requests the flows and calls each with one after the other, so that the list is never in memory as a whole; it ends when
// each returns false. more says that the limit cut the list. The flow is valid during the call.
func (c *Client) EachFlow(ctx context.Context, query FlowQuery, each func(*v1.Flow) bool) (more bool, err error) {
	response, err := c.accepted(ctx, c.http, http.MethodGet, "/flows", query.Values(), nil)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	list := json.NewDecoder(io.LimitReader(response.Body, c.limit))
	for range 3 { // {"flows": [
		if _, err := list.Token(); err != nil {
			return false, fmt.Errorf("answer of %s: %w", c.address, err)
		}
	}
	for list.More() {
		var flow v1.Flow
		if err := list.Decode(&flow); err != nil {
			return false, fmt.Errorf("answer of %s: %w", c.address, err)
		}
		if !each(&flow) {
			return false, nil
		}
	}
	for range 3 { // ], "more": true
		value, err := list.Token()
		if err != nil {
			return false, fmt.Errorf("answer of %s: %w", c.address, err)
		}
		more = value == true
	}
	return more, nil
}

// Applied follows which configuration the data path of a load balancer has applied. It calls each with the state now, at each change,
// and every 10 s, until each returns false or ctx ends; then it returns nil.
func (c *Client) Applied(ctx context.Context, each func(*v1.Applied) bool) error {
	return c.Stream(ctx, "/applied", nil, func(text []byte) (bool, error) {
		var line v1.Applied
		if err := json.Unmarshal(text, &line); err != nil {
			return false, fmt.Errorf("a line of the applied configurations: %w", err)
		}
		return each(&line), nil
	})
}

// TraceQuery selects packets. The zero value selects those of all services.
type TraceQuery struct {
	Service string   // name; empty: any
	Source  string   // address or prefix that packets come from; empty: any
	Host    string   // address or prefix that packets come from or go to; empty: any; not together with Source
	Reasons []string // such as no_backend; nil: all, without not_service and not_ip unless Source or Host is given
}

// Values returns the query of POST /trace.
func (q *TraceQuery) Values() url.Values {
	values := url.Values{"reason": q.Reasons}
	for key, value := range map[string]string{"service": q.Service, "src": q.Source, "host": q.Host} {
		if value != "" {
			values.Set(key, value)
		}
	}
	return values
}

// Trace follows the packets of the NFQUEUE data path. It calls each with every line until each returns false or ctx ends; then it
// returns nil. One client at a time can trace; another one gets the status 409. The line and its head are valid during the call.
func (c *Client) Trace(ctx context.Context, query TraceQuery, each func(*v1.TraceLine) bool) error {
	return c.Stream(ctx, "/trace", query.Values(), func(text []byte) (bool, error) {
		var line v1.TraceLine
		if err := json.Unmarshal(text, &line); err != nil {
			return false, fmt.Errorf("a line of the trace: %w", err)
		}
		return each(&line), nil
	})
}
