package cluster

import (
	"runtime"
	"testing"

	"github.com/weir-lb/weir/internal/coap/cluster/store"
	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// The memory of a session with a pre-shared key, an identity of 32 bytes and a connection id of 6: its slot in the arena, and what the owner of a
// copied one has besides. What the buddy has is measured in package replica.
func TestMemoryOfASession(t *testing.T) {
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	a, err := arena.New(arena.Config{Slots: 1, Application: exchange.MemorySize}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if t.Logf("a slot of the arena: %d bytes", a.SlotSize()); a.SlotSize() >= 1000 {
		t.Errorf("a slot of the arena has %d bytes", a.SlotSize())
	}
	const static = 90 + 32 + 6
	for _, c := range []struct {
		name                      string
		sessions, changing, bound int
	}{
		{"idle: no answers are remembered", 100_000, 40, 400},
		{"with as many answers as are copied", 20_000, 200, 600},
	} {
		own, err := New(Config{
			Nodes: []Node{{ID: 1, DTLS: ":1", Management: "localhost:1"}}, Security: &Security{Secret: []byte("secret")}, Replicate: &Replicate{Store: new(store.Memory)},
		}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		life, _ := own.Serving()
		before := heap()
		for range c.sessions {
			if !own.Enter(&engine.Copy{Life: life, Static: make([]byte, static), Changing: make([]byte, c.changing)}, 0) {
				t.Fatal("no room")
			}
		}
		each := (heap() - before) / c.sessions
		runtime.KeepAlive(own)
		if t.Logf("%s: %d bytes besides", c.name, each); each > c.bound {
			t.Errorf("%s: %d bytes besides, at most %d", c.name, each, c.bound)
		}
	}
}
