package udpnat_test

import (
	"testing"

	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// One destination under two names: both get flows, each is listed and drained by itself, and a flow keeps its name.
func TestOneDestinationUnderTwoNames(t *testing.T) {
	f := start(t, udpnat.Config{}, 1, func(s *lb.Spec) {
		second := s.Services[0].Backends[0]
		second.Name = "again"
		s.Services[0].Backends = append(s.Services[0].Backends, second)
	})
	names := func() map[string]int64 {
		all := map[string]int64{}
		for _, b := range f.datapath.Stats().Backends {
			if b.Addr != f.backends[0].addr {
				t.Errorf("backend %s has the address %s", b.Name, b.Addr)
			}
			all[b.Name] = b.Entries
		}
		return all
	}
	first := f.backends[0].name
	if got := names(); len(got) != 2 {
		t.Fatalf("backends %v", got)
	}
	open := func(n int) {
		for range n {
			f.client().exchange("x")
		}
	}
	for n := 0; n < 200 && (names()[first] < 4 || names()["again"] < 4); n++ {
		open(1)
	}
	before := names()
	if before[first] < 4 || before["again"] < 4 {
		t.Fatalf("one name got no flow: %v", before)
	}
	if err := f.intent.SetOverrides(lb.FromOperator, map[lb.Target]lb.Override{{Service: "nat", Backend: "again"}: lb.OverrideDrain}); err != nil {
		t.Fatal(err)
	}
	open(5)
	if after := names(); after["again"] != before["again"] || after[first] != before[first]+5 {
		t.Errorf("before the drain %v, after it %v", before, after)
	}
}

// A backend without a server keeps its share: that part of the clients gets nothing, the others stay with their backends.
func TestAShareWithoutServerIsDropped(t *testing.T) {
	f := start(t, udpnat.Config{}, 1, func(s *lb.Spec) {
		s.Services[0].Backends = append(s.Services[0].Backends, lb.BackendSpec{Name: "gone", Action: lb.ActDrop})
	})
	const clients = 200
	for range clients {
		f.client().send([]byte("x"))
	}
	var refused uint64
	f.eventually("each datagram is forwarded or refused", func() bool {
		refused = f.datapath.Stats().Reasons["share_refused"]
		return refused+f.counters().Forwarded == clients
	})
	if refused < clients/4 || refused > clients*3/4 {
		t.Errorf("%d of %d clients were refused, want half", refused, clients)
	}
	if got := f.counters(); got.Opened != got.Forwarded {
		t.Errorf("%d entries for %d datagrams that were forwarded", got.Opened, got.Forwarded)
	}
}
