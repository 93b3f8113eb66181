package coap

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/oscore"
)

// lossyRelay forwards datagrams between one client and a server. Of each direction it drops every fourth one, sends every third one
// twice, and every fifth one behind the one after it. It returns the address for the client.
func lossyRelay(t *testing.T, server string) string {
	t.Helper()
	inside, err := net.Dial("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	outside, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inside.Close(); outside.Close() })
	var mu sync.Mutex
	var peer *net.UDPAddr
	forward := func(read func([]byte) (int, error), write func([]byte)) {
		var held []byte
		for n := 1; ; n++ {
			buf := make([]byte, 2048)
			size, err := read(buf)
			if err != nil {
				return
			}
			datagram := buf[:size]
			switch {
			case n%4 == 0:
			case n%5 == 0:
				held = datagram
				continue
			default:
				write(datagram)
				if n%3 == 0 {
					write(datagram)
				}
			}
			if held != nil {
				write(held)
				held = nil
			}
		}
	}
	go forward(func(b []byte) (int, error) {
		n, from, err := outside.ReadFromUDP(b)
		mu.Lock()
		defer mu.Unlock()
		peer = from
		return n, err
	}, func(b []byte) { _, _ = inside.Write(b) })
	go forward(inside.Read, func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = outside.WriteToUDP(b, peer)
	})
	return outside.LocalAddr().String()
}

// Lost, repeated and reordered datagrams: the message layer repeats what is lost and recognises what comes twice, so that OSCORE sees no
// replay, and no request is executed twice.
func TestOSCOREOverALossyPath(t *testing.T) {
	clitest.TakesSeconds(t)
	server := coaptest.Start(t, 1, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0", "--plugtest", "--notify-interval", "50ms", "--workers", "1")
	address := lossyRelay(t, strings.TrimPrefix(server.Uris[0], "coap://"))
	conn, err := client.Dial(t.Context(), "coap://"+address, client.DialConfig{Protector: oscore.NewClient(testContext(t), 2048), AckTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 20 {
		if m := do(t, conn, client.Request{Method: message.PUT, Path: []string{"oscore"}, Payload: []byte("x")}); m.Code != message.Changed {
			t.Fatal(m.Code)
		}
		if m := do(t, conn, client.Request{Path: []string{"oscore"}}); m.Code != message.Content {
			t.Fatal(m.Code)
		}
	}
	last, states := uint32(0), 0
	err = conn.Observe(t.Context(), client.ObserveConfig{Request: client.Request{Path: []string{"obs"}}}, func(n client.Notification) bool {
		if states > 0 && n.Sequence <= last {
			t.Errorf("sequence %d after %d", n.Sequence, last)
		}
		last = n.Sequence
		states++
		return states < 3
	})
	if err != nil || states != 3 {
		t.Errorf("%d states, %v", states, err)
	}
	if n := server.Await("weir_coap_exchange_duplicates_total", -1); n < 5 {
		t.Errorf("%v duplicates reached the server: the path is not lossy", n)
	}
	if n := server.Metric("weir_coap_oscore_replays_total") + server.Metric("weir_coap_oscore_forged_total"); n != 0 {
		t.Errorf("%v replays and forgeries", n)
	}
	// The requests above, the registration, its end, and nothing twice.
	if n := server.Metric("weir_coap_oscore_requests_total"); n < 41 || n > 43 {
		t.Errorf("%v requests executed, want 42", n)
	}
}

// Each registration of an observation has numbers of its own: the answer to the next one is not taken for an old notification, and
// notifications of the one before, while that answer is awaited, not for a forged answer.
func TestOSCORERegistersAgain(t *testing.T) {
	server := coaptest.Start(t, 1, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0", "--plugtest", "--notify-interval", "120ms", "--workers", "1")
	conn, err := client.Dial(t.Context(), server.Uris[0], client.DialConfig{Protector: oscore.NewClient(testContext(t), 2048)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var last client.Notification
	err = conn.Observe(t.Context(), client.ObserveConfig{Request: client.Request{Path: []string{"obs"}}, Refresh: 50 * time.Millisecond}, func(n client.Notification) bool {
		last = n
		return n.Registrations < 4 && n.Number < 100
	})
	if err != nil || last.Registrations != 4 || last.Number < 4 {
		t.Errorf("%d states, %d registrations, %v", last.Number, last.Registrations, err)
	}
	if n := server.Await("weir_coap_oscore_requests_total", 5); n != 5 { // four and the end
		t.Errorf("%v requests, want 5", n)
	}
}
