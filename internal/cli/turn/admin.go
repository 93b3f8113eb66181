package turn

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// turnAdmin is the admin API of a gateway. With stunner, the metrics are also served under the names that STUNner
// gives them.
func turnAdmin(g *gateway.Gateway, now func() int64, stunner bool) admin.Config {
	return admin.Config{
		Ready:  g.Ready,
		Status: func() any { return turnText(g.Stats()) },
		Metrics: func() []metrics.Sample {
			stats := g.Stats()
			samples := turnSamples(&stats)
			if stunner {
				samples = append(samples, metrics.Of(stunnerd.MetricsOf(&stats))...)
			}
			return samples
		},
		Plots: plots(),
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
func turnSamples(stats *gateway.Stats) []metrics.Sample {
	named := *stats
	named.Offload = cmp.Or(named.Offload, "none")
	return metrics.Of(&named)
}
