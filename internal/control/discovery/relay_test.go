package discovery

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// relaying runs a server that follows the one which origin finds.
func relaying(t *testing.T, name string, find func() (Origin, error)) (*Server, *httptest.Server) {
	t.Helper()
	s, h := serving(t, ServerOptions{})
	watching(t, &Watcher{Node: name, Relay: s, Find: func(context.Context) (Origin, error) { return find() }, Apply: func(config []byte) (uint64, error) {
		_, err := s.Set(config)
		return 0, err
	}})
	return s, h
}

// node is a node at a server.
func nodeAt(t *testing.T, h *httptest.Server, name string) (p *plane, end func()) {
	t.Helper()
	p = &plane{}
	return p, watching(t, &Watcher{Origin: origin(t, h.URL), Node: name, Apply: p.apply})
}

// A node that is connected to a relay has the leader's configurations, and the leader learns what became of each there. While no leader can be
// reached, the relay gives out what it has, also to a node that begins.
func TestRelay(t *testing.T) {
	leader, at := serving(t, ServerOptions{})
	var mu sync.Mutex
	found, none := origin(t, at.URL), false
	relay, h := relaying(t, "r", func() (Origin, error) {
		mu.Lock()
		defer mu.Unlock()
		if none {
			return Origin{}, errors.New("no operator leads")
		}
		return found, nil
	})
	nodeAt(t, at, "direct")
	p, _ := nodeAt(t, h, "behind")
	first := set(t, leader, "one")
	until(t, leader, "the node behind the relay has it", func(n NodeStatus) bool {
		return n.Node == "behind" && n.Connected && n.Current() && n.Applied == first && n.Generation == 1
	})
	until(t, leader, "the other node has it", func(n NodeStatus) bool { return n.Node == "direct" && n.Connected && n.Current() })
	set(t, leader, "bad")
	until(t, leader, "the leader learns the reason", func(n NodeStatus) bool {
		return n.Node == "behind" && n.Refused == n.Wanted && strings.Contains(n.Error, "it is bad") && n.Applied == first
	})
	third := set(t, leader, "three")
	until(t, leader, "the node has the next one", func(n NodeStatus) bool { return n.Node == "behind" && n.Applied == third && n.Error == "" })
	if stats := leader.Stats(); len(leader.Nodes()) != 2 || stats.Relays != 1 || stats.Nodes != 1 || stats.Rejected != 0 {
		t.Errorf("%+v %+v", leader.Nodes(), stats)
	}

	mu.Lock()
	none = true
	mu.Unlock()
	at.CloseClientConnections()
	late, endLate := nodeAt(t, h, "late")
	until(t, relay, "a node begins without the leader", func(n NodeStatus) bool { return n.Node == "late" && n.Applied == third })
	if late.all() != "three" || p.all() != "one|three" {
		t.Errorf("%q, %q", late.all(), p.all())
	}
	mu.Lock()
	none = false
	mu.Unlock()
	fourth := set(t, leader, "four")
	for _, name := range []string{"behind", "late"} {
		until(t, leader, name+" follows the leader again", func(n NodeStatus) bool { return n.Node == name && n.Applied == fourth })
	}
	endLate()
	until(t, leader, "a node ends", func(NodeStatus) bool { return len(leader.Nodes()) == 2 })
}

// A node that connects to the leader while a relay still has a dead connection of it is the one at the leader.
func TestRelayedNodeMoves(t *testing.T) {
	leader, at := serving(t, ServerOptions{})
	version := set(t, leader, "one")
	_, h := relaying(t, "r", func() (Origin, error) { return origin(t, at.URL), nil })
	_, end := nodeAt(t, h, "n")
	until(t, leader, "it is behind the relay", func(n NodeStatus) bool { return n.Node == "n" && n.Applied == version })
	nodeAt(t, at, "n")
	second := set(t, leader, "two")
	until(t, leader, "it is at the leader", func(n NodeStatus) bool { return n.Connected && n.Applied == second && leader.has("n") })
	end()
	if all := leader.Nodes(); len(all) != 1 || all[0].Applied != second || !all[0].Connected {
		t.Errorf("%+v", all)
	}
}

// Reports of relays are bounded and checked.
func TestRelayErrors(t *testing.T) {
	s, h := serving(t, ServerOptions{})
	post := func(name, body string) int {
		t.Helper()
		answer, err := http.Post(h.URL+relayedPath+"?node="+name, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for body, want := range map[string]int{
		`{"nodes":[]}`:                             http.StatusConflict, // it is not connected
		`nonsense`:                                 http.StatusBadRequest,
		`{"nodes":[{"node":"a/b"}]}`:               http.StatusBadRequest,
		`{"nodes":[{"node":"a","applied":"x"}]}`:   http.StatusBadRequest,
		`{"nodes":[{"node":"a","refused":"1 2"}]}`: http.StatusBadRequest,
		`{"nodes":[` + strings.Repeat(`{"node":"a"},`, MaxNodes) + `{"node":"a"}]}`: http.StatusBadRequest,
	} {
		if got := post("r", body); got != want {
			t.Errorf("%.60s: %d, want %d", body, got, want)
		}
	}
	if got := post("", `{"nodes":[]}`); got != http.StatusBadRequest {
		t.Errorf("without a name: %d", got)
	}
	for i := range maxRelays + 1 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+relayPath+"?node=r"+strings.Repeat("x", i), bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		if want := map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusOK}[i == maxRelays]; answer.StatusCode != want {
			t.Errorf("relay %d: %s", i, answer.Status)
		}
	}
	if stats := s.Stats(); stats.Relays != maxRelays {
		t.Errorf("%+v", stats)
	}
}
