package client

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// everyFifth demands an Echo for every fifth request of a client that has none, and takes each value once.
func everyFifth(t *testing.T, bytesOfPayload int) func(m *message.Message) []byte {
	demanded, served := map[uint32][]byte{}, map[uint32]int{}
	return func(m *message.Message) []byte {
		client := binary.BigEndian.Uint32(m.Token)
		if want := demanded[client]; want != nil {
			if value, _ := m.Option(message.Echo); !bytes.Equal(value, want) || m.Code != message.POST || len(m.Payload) != bytesOfPayload {
				t.Errorf("client %d repeats %v with %x and %d bytes, want %x", client, m.Code, value, len(m.Payload), want)
			}
			delete(demanded, client)
		} else if _, ok := m.Option(message.Echo); ok {
			t.Errorf("client %d sends an Echo that is not demanded", client)
		} else if served[client]%5 == 0 {
			demanded[client] = append(slices.Repeat([]byte{7}, 36), m.Token[4:8]...) // 40 bytes, the longest one
			return demanded[client]
		}
		served[client]++
		return nil
	}
}

// longestPayload is the longest one that a request of this load has room for.
func longestPayload(t *testing.T, c BenchConfig) []byte {
	for n := maxRequest; ; n-- {
		c.Payload = make([]byte, n)
		if b, err := newBench(c); err == nil {
			for _, w := range b.workers {
				w.close()
			}
			return c.Payload
		} else if n < maxRequest-100 {
			t.Fatal(err)
		}
	}
}

// A request that a server answers with 4.01 and an Echo is repeated with it and counts once; the longest request has room for it.
func TestBenchAnswersEcho(t *testing.T) {
	for name, change := range map[string]func(*BenchConfig){
		"plain":   func(*BenchConfig) {},
		"NON":     func(c *BenchConfig) { c.NON = true },
		"shared":  func(c *BenchConfig) { c.Sockets = SocketsShared },
		"longest": func(c *BenchConfig) { c.Clients, c.Payload = 1, longestPayload(t, *c) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, false)
			cfg := BenchConfig{URI: p.uri, Clients: 4, Requests: 10, Payload: make([]byte, 40), AckTimeout: time.Minute}
			change(&cfg)
			demand := everyFifth(t, len(cfg.Payload))
			p.demand.Store(&demand)
			r, err := Bench(t.Context(), cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			// The first request of the first client is in addition to these: it is not part of the load.
			want := uint64(10 * cfg.Clients)
			if s := r.Stats; s.Requests != want || s.Echoes < want/5 || s.Echoes > want/5+1 || s.Errors != 0 || s.Sent != want+s.Echoes+1 || r.RTT.Count() != want {
				t.Errorf("%+v, %d round trips", s, r.RTT.Count())
			}
		})
	}
}

// A server that takes no value, and one that demands another one each time, refuse the request.
func TestEchoIsNotRepeatedForever(t *testing.T) {
	e := newEcho(t)
	for name, c := range map[string]struct {
		values  string
		repeats uint64
	}{"the same value": {"aa", 1}, "other values": {"abcd", maxEchoes}} {
		before := e.w.stats
		for i := range c.values {
			e.respond(message.Unauthorized, []byte(c.values[i:i+1]))
		}
		s := e.w.stats
		if s.Echoes != before.Echoes+c.repeats || s.Failed != before.Failed+1 || e.w.clients[0].state != stateEnded {
			t.Errorf("%s: %+v, before %+v", name, s, before)
		}
		e.w.clients[0].state = stateReady
		e.w.clients[0].send(e.w.now)
	}
}

// A repeated request has a new token, its payload, and the time of the first one; the next request has no Echo.
func TestEchoCountsFromTheFirstRequest(t *testing.T) {
	e := newEcho(t)
	first := e.respond(message.Unauthorized, []byte("proof"))
	token := bytes.Clone(first.Token)
	second := e.respond(message.Changed, nil)
	if value, _ := second.Option(message.Echo); string(value) != "proof" || bytes.Equal(second.Token, token) {
		t.Errorf("repeated with %q and token %x after %x", value, second.Token, token)
	}
	third := e.respond(message.Changed, nil)
	if _, ok := third.Option(message.Echo); ok {
		t.Error("the next request has an Echo")
	}
	if low, high := e.w.rtt.Quantile(0.5), e.w.rtt.Max(); e.w.rtt.Count() != 2 || low > 1100*time.Microsecond || high < 1900*time.Microsecond {
		t.Errorf("%d round trips of %v and %v, want 1 and 2 ms", e.w.rtt.Count(), low, high)
	}
}
