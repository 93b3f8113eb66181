package exchange

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Client and server endpoints over a network that loses, repeats and reorders: every request ends exactly once, no unsafe
// request is executed twice, and nothing stays pending.
func TestLossyNetwork(t *testing.T) {
	const requests = 400
	random := rand.New(rand.NewPCG(1, 2))
	executed := map[string]int{}
	server := newFixture(t, Config{Seed: 1})
	server.journal.serve = func(m *message.Message, r *Reply) {
		executed[string(m.Token)]++
		if random.IntN(2) == 0 {
			r.Separate(time.Duration(random.IntN(3000)) * time.Millisecond)
		}
		r.Text(message.Changed, "done")
	}
	client := newFixture(t, Config{Seed: 2})

	type flight struct {
		to       *fixture
		datagram []byte
		at       time.Duration
	}
	var air []flight
	launch := func(to *fixture, datagram []byte, now time.Duration) {
		for range []int{0, 1, 1, 1, 1, 1, 1, 2}[random.IntN(8)] { // one in eight lost, one repeated
			air = append(air, flight{to, bytes.Clone(datagram), now + time.Duration(random.IntN(400))*time.Millisecond})
		}
	}
	collect := func(from, to *fixture, now time.Duration) {
		for _, d := range from.outbox.sent {
			launch(to, d, now)
		}
		from.outbox.sent, from.times = nil, nil
	}
	sent := 0
	for now := time.Duration(0); now < 1200*time.Second; now += 50 * time.Millisecond {
		if sent < requests && client.Pending() < 4 {
			token := string([]byte{byte(sent >> 8), byte(sent)})
			if _, err := client.Send(&client.session, build(t, message.Con, message.POST, client.NextID(&client.session), token), now); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		landed := air
		air = nil
		for _, f := range landed {
			if f.at > now {
				air = append(air, f)
				continue
			}
			back := server
			if f.to == server {
				back = client
			}
			if reply := f.to.Receive(&f.to.session, f.datagram, f.to.out, now); len(reply) > 0 {
				launch(back, reply, now)
			}
		}
		client.Tick(now)
		server.Tick(now)
		collect(client, server, now)
		collect(server, client, now)
	}
	for token, n := range executed {
		if n != 1 {
			t.Errorf("request %x executed %d times", token, n)
		}
	}
	if len(client.journal.events) != requests || len(executed) < requests-5 {
		t.Errorf("%d requests sent, %d ended, %d executed", sent, len(client.journal.events), len(executed))
	}
	if client.Pending() != 0 || server.Pending() != 0 {
		t.Errorf("pending at the end: client %d, server %d", client.Pending(), server.Pending())
	}
	if c := client.Counters(); c.Retransmissions == 0 || server.Counters().Duplicates == 0 {
		t.Errorf("the network was kind: client %+v server %+v", c, server.Counters())
	}
}

// Any sequence of datagrams and times leaves tables bounded and lists consistent.
func FuzzEndpoint(f *testing.F) {
	f.Add([]byte{4, 0x40, 1, 0, 1, 4, 0x60, 0, 0, 1, 4, 0x70, 0, 0, 1, 5, 0x41, 2, 0, 1, 9})
	f.Fuzz(func(t *testing.T, script []byte) {
		r := newFixture(t, Config{MaxPending: 4, LogBytes: 256})
		r.journal.serve = func(m *message.Message, reply *Reply) {
			if m.ID&1 != 0 {
				reply.Separate(time.Duration(m.ID) * time.Millisecond)
			}
			reply.Text(message.Content, "answer")
		}
		now := time.Duration(0)
		for len(script) > 0 {
			n := min(int(script[0])&31, len(script)-1)
			step := script[0] >> 5
			r.Receive(&r.session, script[1:1+n], r.out, now)
			if step == 7 {
				_, _ = r.Send(&r.session, build(t, message.Con, message.GET, r.NextID(&r.session), string(script[:1])), now)
			}
			script = script[1+n:]
			now += time.Duration(step) * time.Second
			r.Tick(now)
			check(t, r)
		}
		r.Forget(&r.session)
		if r.Pending() != 0 {
			t.Fatalf("%d pending after Forget", r.Pending())
		}
	})
}

func check(t *testing.T, r *fixture) {
	p := &r.pendings
	if p.due.Len() > 4 || len(p.slots) > 4 {
		t.Fatalf("%d pending, %d slots", p.due.Len(), len(p.slots))
	}
	listed := 0
	for i := r.session.head(); i >= 0; i = p.slots[i].next {
		if listed++; listed > p.due.Len() {
			t.Fatal("list longer than the heap")
		}
	}
	if listed != p.due.Len() {
		t.Fatalf("%d listed, %d in the heap", listed, p.due.Len())
	}
}
