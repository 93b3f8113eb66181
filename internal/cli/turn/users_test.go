package turn

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

const turnNow = int64(2000 * time.Second)

func turnUser(id uint64, name, client string, bytes uint64) v1.TurnUser {
	return v1.TurnUser{
		ID: id, User: name, Client: netip.MustParseAddrPort(client), Transport: "udp", Listener: "media",
		Relay: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.1:50000")}, Created: turnNow - int64(100*time.Second),
		Expires: turnNow + int64(500*time.Second), Channels: 1, Peers: []netip.AddrPort{netip.MustParseAddrPort("198.51.100.7:7000")},
		Up: gateway.Traffic{Packets: 10, Bytes: bytes}, LastUp: turnNow - int64(2*time.Second),
	}
}

func TestTurnUsersAreFilteredSortedAndCut(t *testing.T) {
	all := []v1.TurnUser{
		turnUser(1, "a", "192.0.2.1:1000", 100), turnUser(2, "b", "192.0.2.2:1000", 300),
		turnUser(3, "a", "198.51.100.1:1000", 200), turnUser(4, "a", "[2001:db8::1]:1000", 400),
	}
	all[3].Transport, all[3].Listener = "tls", "secure"
	for _, c := range []struct {
		query string
		want  []uint64
		total int
	}{
		{"", []uint64{1, 2, 3, 4}, 4},
		{"user=a", []uint64{1, 3, 4}, 3},
		{"client=192.0.2.0/24", []uint64{1, 2}, 2},
		{"client=2001:db8::1", []uint64{4}, 1},
		{"listener=secure", []uint64{4}, 1},
		{"transport=udp&sort=bytes&limit=2", []uint64{2, 3}, 3},
		{"sort=bytes", []uint64{4, 2, 3, 1}, 4},
		{"user=nobody", nil, 0},
	} {
		form, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		question, err := parseTurnQuestion(form)
		if err != nil {
			t.Fatalf("%s: %v", c.query, err)
		}
		list := question.answer(turnNow, slices.Values(all))
		var ids []uint64
		for _, u := range list.Users {
			ids = append(ids, u.ID)
		}
		if !slices.Equal(ids, c.want) || list.Total != c.total || list.Users == nil {
			t.Errorf("%s: %v of %d, want %v of %d", c.query, ids, list.Total, c.want, c.total)
		}
	}
	for _, bad := range []string{"limit=0", "limit=x", "limit=100001", "client=here", "sort=size"} {
		form, _ := url.ParseQuery(bad)
		if _, err := parseTurnQuestion(form); err == nil || !strings.Contains(err.Error(), "write") {
			t.Errorf("%s: error %v, want what to write", bad, err)
		}
	}
}

// The table shows the rate of the time between two askings, and that more exist than it lists.
func TestTurnUsersTable(t *testing.T) {
	queries := 0
	api, err := admin.Open(admin.Config{Address: "127.0.0.1:0", Token: clitest.TestToken, Routes: []admin.Route{{Pattern: "GET /users", Answer: func(r *http.Request) (any, error) {
		question, err := parseTurnQuestion(r.URL.Query())
		if err != nil {
			return nil, err
		}
		queries++
		users := []v1.TurnUser{turnUser(1, "alice", "192.0.2.1:1000", uint64(queries)*125_000), turnUser(2, "bob", "192.0.2.2:1000", 0)}
		users[1].LastUp = 0
		return question.answer(turnNow+int64(queries)*int64(time.Second), slices.Values(users)), nil
	}}}})
	clitest.Must(t, err)
	go api.Run(t.Context()) //nolint:errcheck // ends with the test
	var out strings.Builder
	running, query := client.New(api.Address(), clitest.TestToken), client.UserQuery{Limit: 1}
	var table status.Users
	for range 2 {
		out.Reset()
		list, err := running.Users(t.Context(), query)
		clitest.Must(t, err)
		clitest.Must(t, table.Write(&out, list))
	}
	for _, want := range []string{"alice", "192.0.2.1:1000", "media udp", "203.0.113.1:50000", "198.51.100.7:7000", "250 kB", "1 Mbit/s", "2 allocations, 1 shown"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "bob") {
		t.Errorf("more than --limit rows:\n%s", &out)
	}
}

func TestTurnMetricsHaveNoUserNames(t *testing.T) {
	stats := gateway.Stats{
		Workers: 2, Ready: true, Totals: gateway.Counts{Allocations: 3},
		Listeners: []gateway.ListenerStats{{Name: "media", Protocol: "udp", Reasons: map[string]uint64{"forbidden-peer": 4}, Counts: gateway.Counts{
			Allocations: 3, Opened: 5, Up: gateway.Traffic{Packets: 7, Bytes: 700}, Down: gateway.Traffic{Packets: 8, Bytes: 800},
		}}},
		Clusters: []gateway.ClusterStats{{Name: "inside", Counts: gateway.Counts{Up: gateway.Traffic{Packets: 7}}}},
	}
	api, err := admin.Open(admin.Config{Address: "127.0.0.1:0", Metrics: func() []metrics.Sample { return append(turnSamples(&stats), metrics.Of(stunnerd.MetricsOf(&stats))...) }})
	clitest.Must(t, err)
	go api.Run(t.Context()) //nolint:errcheck // ends with the test
	request := httptest.NewRequest(http.MethodGet, "http://"+api.Address()+"/metrics", nil).WithContext(t.Context())
	request.RequestURI = ""
	response, err := http.DefaultClient.Do(request)
	clitest.Must(t, err)
	defer response.Body.Close()
	var text strings.Builder
	_ = response.Write(&text)
	for _, want := range []string{
		`weir_turn_listener_allocations{listener="media",protocol="udp"} 3`,
		`weir_turn_listener_reasons_total{listener="media",protocol="udp",reason="forbidden-peer"} 4`,
		`weir_turn_listener_bytes_total{direction="down",listener="media",protocol="udp"} 800`,
		`weir_turn_cluster_packets_total{cluster="inside",direction="up"} 7`,
		`weir_turn_offload_info{mode="none"} 1`,
		`stunner_allocations_active 3`,
		`stunner_listener_packets_total{direction="rx",name="media"} 7`,
		`stunner_listener_connections_total{name="media"} 5`,
	} {
		if !strings.Contains(text.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "user") && strings.Contains(text.String(), `user="`) {
		t.Error("a metric has a user's name as label")
	}
}
