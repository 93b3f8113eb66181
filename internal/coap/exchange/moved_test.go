package exchange

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// counting answers each request with the number of requests that were executed.
type counting struct{ executed int }

func (c *counting) Serve(_ *Session, _ *message.Message, reply *Reply, _ time.Duration) {
	c.executed++
	reply.Begin(message.Changed).Payload([]byte{byte('0' + c.executed)})
}

func post(id uint16) []byte {
	var m message.Builder
	m.Reset(make([]byte, 0, 16), message.Con, message.POST, id, []byte{7})
	b, err := m.Bytes()
	if err != nil {
		panic(err)
	}
	return b
}

// A request that is repeated after its session has moved gets the answer it had, and is not executed again; where the answers do not fit
// the older ones are dropped, without a second execution.
func TestRepeatedRequestAfterMove(t *testing.T) {
	old, now := new(counting), time.Hour
	a := New(Config{Seed: 1}, nil, old, nil)
	var before Session
	out := make([]byte, 0, 1500)
	answers := map[uint16]string{}
	for id := uint16(1); id <= 5; id++ {
		answers[id] = string(a.Receive(&before, post(id), out, now))
	}
	for _, test := range []struct {
		room      int
		forgotten uint16 // ids up to this one have no answer any more
	}{{800, 0}, {movedHead + 5*movedEntry + 2*len(answers[1]), 3}, {0, 5}} {
		moved, ready := a.Export(&before, nil, test.room, now)
		if !ready || len(moved) > test.room {
			t.Fatalf("%d bytes for %d, ready %v", len(moved), test.room, ready)
		}
		if test.room == 0 {
			continue
		}
		other := new(counting)
		b := New(Config{Seed: 2}, nil, other, nil)
		var after Session
		then := 3 * time.Second // the clock of another process
		b.Import(&after, moved, then)
		for id := uint16(1); id <= 5; id++ {
			want := answers[id]
			if id <= test.forgotten {
				want = ""
			}
			if got := string(b.Receive(&after, post(id), out, then+time.Second)); got != want {
				t.Errorf("room %d: the repeated request %d is answered with %q, want %q", test.room, id, got, want)
			}
		}
		if other.executed != 0 {
			t.Errorf("%d requests were executed again", other.executed)
		}
		if got := b.Receive(&after, post(6), out, then+time.Second); len(got) == 0 || other.executed != 1 {
			t.Errorf("a new request is answered with %x, %d executed", got, other.executed)
		}
		if after.mid != before.mid || after.started != before.started {
			t.Errorf("the server's own message ids begin at %d (%v), before at %d (%v)", after.mid, after.started, before.mid, before.started)
		}
	}
}

func FuzzImport(f *testing.F) {
	a := New(Config{Seed: 1}, nil, new(counting), nil)
	var s Session
	a.Receive(&s, post(1), make([]byte, 0, 1500), time.Hour)
	moved, _ := a.Export(&s, nil, 800, time.Hour)
	f.Add(moved)
	f.Add(moved[:len(moved)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Session
		e := New(Config{Seed: 1}, nil, new(counting), nil)
		e.Import(&s, b, time.Hour)
		e.Receive(&s, post(1), make([]byte, 0, 1500), time.Hour)
		if out, _ := e.Export(&s, nil, 800, time.Hour); len(out) > 800 {
			t.Fatalf("%d bytes", len(out))
		}
	})
}
