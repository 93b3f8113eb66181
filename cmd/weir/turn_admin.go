package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// turnAdmin is the admin API of a gateway. With stunner, the metrics are also served under the names that STUNner
// gives them.
func turnAdmin(g *gateway.Gateway, now func() int64, stunner bool) admin.Config {
	return admin.Config{
		Ready:  g.Ready,
		Status: func() any { return turnText(g.Stats()) },
		Metrics: func() []admin.Sample {
			stats := g.Stats()
			samples := turnSamples(&stats)
			if stunner {
				samples = append(samples, stunnerSamples(&stats)...)
			}
			return samples
		},
		Routes: []admin.Route{{Pattern: "GET /users", Answer: func(r *http.Request) (any, error) {
			question, err := parseTurnQuestion(r.URL.Query())
			if err != nil {
				return nil, err
			}
			return question.answer(now(), g.Users), nil
		}}},
	}
}

// turnQuestion is a query of /users.
type turnQuestion struct {
	user, listener, transport string
	client                    netip.Prefix // invalid: any
	order                     func(a, b *v1.TurnUser) int
	limit                     int
}

func parseTurnQuestion(form url.Values) (q turnQuestion, err error) {
	q = turnQuestion{user: form.Get("user"), listener: form.Get("listener"), transport: form.Get("transport"), limit: 1000}
	if text := form.Get("limit"); text != "" {
		if q.limit, err = strconv.Atoi(text); err != nil || q.limit < 1 || q.limit > v1.MaxTurnUsers {
			return q, fmt.Errorf("limit %q: write 1 to %d", text, v1.MaxTurnUsers)
		}
	}
	if text := form.Get("client"); text != "" {
		if q.client, err = admin.ParseClient(text); err != nil {
			return q, err
		}
	}
	orders := map[string]func(a, b *v1.TurnUser) int{
		"bytes":   func(a, b *v1.TurnUser) int { return cmp.Compare(bytesOf(b), bytesOf(a)) },
		"age":     func(a, b *v1.TurnUser) int { return cmp.Compare(a.Created, b.Created) },
		"expires": func(a, b *v1.TurnUser) int { return cmp.Compare(a.Expires, b.Expires) },
		"idle":    func(a, b *v1.TurnUser) int { return cmp.Compare(lastReceived(a), lastReceived(b)) },
		"user":    func(a, b *v1.TurnUser) int { return strings.Compare(a.User, b.User) },
		"client":  func(a, b *v1.TurnUser) int { return a.Client.Compare(b.Client) },
	}
	if q.order = orders[cmp.Or(form.Get("sort"), "age")]; q.order == nil {
		return q, fmt.Errorf("sort %q: write bytes, age, expires, idle, user or client", form.Get("sort"))
	}
	return q, nil
}

func bytesOf(u *v1.TurnUser) uint64 { return u.Up.Bytes + u.Down.Bytes }

// lastReceived is when a user last sent or received something, or created the allocation.
func lastReceived(u *v1.TurnUser) int64 { return max(u.LastUp, u.LastDown, u.Created) }

func (q *turnQuestion) fits(u *v1.TurnUser) bool {
	return (q.user == "" || q.user == u.User) && (q.listener == "" || q.listener == u.Listener) &&
		(q.transport == "" || q.transport == u.Transport) && (!q.client.IsValid() || q.client.Contains(u.Client.Addr().Unmap()))
}

func (q *turnQuestion) answer(now int64, all func(func(v1.TurnUser) bool)) v1.TurnUserList {
	list := v1.TurnUserList{At: now, Users: []v1.TurnUser{}}
	for u := range all {
		if q.fits(&u) {
			list.Users = append(list.Users, u)
		}
	}
	slices.SortFunc(list.Users, func(a, b v1.TurnUser) int { return cmp.Or(q.order(&a, &b), cmp.Compare(a.ID, b.ID)) })
	list.Total = len(list.Users)
	list.Users = list.Users[:min(q.limit, list.Total)]
	return list
}

// turnSamples are the metrics of a gateway. No label has a user's name, because the number of names of ephemeral
// credentials is unbounded.
func turnSamples(s *gateway.Stats) []admin.Sample {
	one := func(yes bool) float64 {
		if yes {
			return 1
		}
		return 0
	}
	samples := []admin.Sample{
		{Name: "weir_turn_ready", Help: "1 while new clients are welcome.", Value: one(s.Ready)},
		{Name: "weir_turn_draining", Help: "1 while the gateway waits for its allocations to end.", Value: one(s.Draining)},
		{Name: "weir_turn_workers", Help: "Goroutines that relay.", Value: float64(s.Workers)},
		{
			Name: "weir_turn_offload_info", Help: "How the kernel relays ChannelData, as a label; none: user space does.",
			Labels: []admin.Label{{Name: "mode", Value: cmp.Or(s.Offload, "none")}}, Value: 1,
		},
	}
	for _, limit := range []struct {
		key   string
		value uint64
	}{
		{"unauthenticated", s.Withheld.Unproven},
		{"bindings", s.Withheld.Bindings},
		{"unauthenticated_total", s.Withheld.Total},
		{"proven", s.Withheld.Proven},
	} {
		samples = append(samples, admin.Sample{
			Name: "weir_turn_answers_withheld_total", Help: "Requests without valid credentials that a limit left unanswered, by the key of the limit.",
			Labels: []admin.Label{{Name: "limit", Value: limit.key}}, Counter: true, Value: float64(limit.value),
		})
	}
	samples = append(samples, admin.Sample{
		Name: "weir_turn_rate_limit_displaced_total", Help: "Sources without a proof that the full table of rate limits forgot.",
		Counter: true, Value: float64(s.Displaced),
	})
	for i := range s.Listeners {
		l := &s.Listeners[i]
		labels := []admin.Label{{Name: "listener", Value: l.Name}, {Name: "protocol", Value: l.Protocol}}
		samples = append(samples, countSamples("weir_turn_listener", labels, &l.Counts)...)
		samples = append(samples,
			admin.Sample{Name: "weir_turn_listener_connections", Help: "Connections of clients over TCP, TLS and DTLS.", Labels: labels, Value: float64(l.Connections)},
			admin.Sample{Name: "weir_turn_listener_overflowed_total", Help: "Datagrams that found the kernel's buffer full.", Labels: labels, Counter: true, Value: float64(l.Overflowed)})
		for _, reason := range slices.Sorted(maps.Keys(l.Reasons)) {
			samples = append(samples, admin.Sample{
				Name: "weir_turn_listener_reasons_total", Help: "Messages and packets by how they ended.", Counter: true,
				Labels: append(slices.Clone(labels), admin.Label{Name: "reason", Value: reason}), Value: float64(l.Reasons[reason]),
			})
		}
	}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		samples = append(samples, countSamples("weir_turn_cluster", []admin.Label{{Name: "cluster", Value: c.Name}}, &c.Counts)...)
	}
	return samples
}

// countSamples are the counters that listeners and clusters share.
func countSamples(prefix string, labels []admin.Label, c *gateway.Counts) []admin.Sample {
	samples := []admin.Sample{
		{Name: prefix + "_allocations", Help: "Allocations that live.", Labels: labels, Value: float64(c.Allocations)},
		{Name: prefix + "_allocations_opened_total", Help: "Allocations since the start.", Labels: labels, Counter: true, Value: float64(c.Opened)},
		{Name: prefix + "_permissions", Help: "Permissions in force.", Labels: labels, Value: float64(c.Permissions)},
		{Name: prefix + "_channels", Help: "Channels in force.", Labels: labels, Value: float64(c.Channels)},
		{Name: prefix + "_suspended", Help: "Permissions and channels whose routes are gone at the moment.", Labels: labels, Value: float64(c.Suspended)},
	}
	for _, way := range []struct {
		name string
		gateway.Traffic
	}{{"up", c.Up}, {"down", c.Down}} {
		labels := append(slices.Clone(labels), admin.Label{Name: "direction", Value: way.name})
		samples = append(samples,
			admin.Sample{Name: prefix + "_packets_total", Help: "Packets relayed; up: from clients to peers.", Labels: labels, Counter: true, Value: float64(way.Packets)},
			admin.Sample{Name: prefix + "_bytes_total", Help: "Bytes of user data relayed; up: from clients to peers.", Labels: labels, Counter: true, Value: float64(way.Bytes)})
	}
	return samples
}

// stunnerSamples are the same counters under the names that a STUNner dashboard queries; rx is traffic from clients.
func stunnerSamples(s *gateway.Stats) []admin.Sample {
	samples := []admin.Sample{{Name: "stunner_allocations_active", Help: "Number of active allocations.", Value: float64(s.Totals.Allocations)}}
	add := func(kind, name string, c *gateway.Counts) {
		for _, way := range []struct {
			direction string
			gateway.Traffic
		}{{"rx", c.Up}, {"tx", c.Down}} {
			labels := []admin.Label{{Name: "name", Value: name}, {Name: "direction", Value: way.direction}}
			samples = append(samples,
				admin.Sample{Name: "stunner_" + kind + "_packets_total", Help: "Packets of a " + kind + ".", Labels: labels, Counter: true, Value: float64(way.Packets)},
				admin.Sample{Name: "stunner_" + kind + "_bytes_total", Help: "Bytes of a " + kind + ".", Labels: labels, Counter: true, Value: float64(way.Bytes)})
		}
	}
	for i := range s.Listeners {
		l := &s.Listeners[i]
		labels := []admin.Label{{Name: "name", Value: l.Name}}
		samples = append(samples,
			admin.Sample{Name: "stunner_listener_connections", Help: "Connections of a listener.", Labels: labels, Value: float64(max(l.Connections, l.Allocations))},
			admin.Sample{Name: "stunner_listener_connections_total", Help: "Connections since the start.", Labels: labels, Counter: true, Value: float64(l.Opened)})
		add("listener", l.Name, &l.Counts)
	}
	for i := range s.Clusters {
		add("cluster", s.Clusters[i].Name, &s.Clusters[i].Counts)
	}
	return samples
}
