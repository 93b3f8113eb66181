package coap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/coap/oscore"
)

// testContext is the public context as a client has it, without a state file.
func testContext(t testing.TB) *oscore.Context {
	t.Helper()
	c, err := oscore.New(node.TestOSCORE(), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// exchange sends a request on a connection and returns the response.
func do(t testing.TB, conn *client.Conn, r client.Request) message.Message {
	t.Helper()
	x, err := conn.Do(t.Context(), &r)
	var m message.Message
	if err != nil || message.Parse(x.Response, &m) != nil {
		t.Fatalf("%s %v: %v", r.Method.Name(), r.Path, err)
	}
	return m
}

// Requests, blocks both ways, observation and errors with OSCORE over UDP, DTLS and TCP, against the plugtest resources.
func TestOSCORE(t *testing.T) {
	server := coaptest.Start(t, 3, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0", "--listen-tcp", "127.0.0.1:0", "--plugtest", "--notify-interval", "20ms", "--workers", "2")
	context := testContext(t)
	for _, uri := range server.Uris {
		scheme, _, _ := strings.Cut(uri, ":")
		t.Run(scheme, func(t *testing.T) {
			conn, err := client.Dial(t.Context(), uri, client.DialConfig{Protector: oscore.NewClient(context, 65536)})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			body := []byte(strings.Repeat("0123456789abcdef", 60))
			for _, test := range []struct {
				request client.Request
				code    message.Code
				payload []byte // nil: any
			}{
				{client.Request{Path: []string{"oscore"}}, message.Content, nil},
				{client.Request{Method: message.POST, Path: []string{"oscore"}, Payload: []byte("x")}, message.Created, nil},
				{client.Request{Method: message.PUT, Path: []string{"oscore"}, Payload: []byte("x")}, message.Changed, nil},
				{client.Request{Method: message.DELETE, Path: []string{"oscore"}}, message.Deleted, nil},
				{client.Request{Path: []string{"nosuch"}}, message.NotFound, nil},
				{client.Request{Path: []string{"separate"}}, message.Content, nil},
				{client.Request{Method: message.PUT, Path: []string{"large-update"}, Payload: body, BlockSize: 64, Options: []client.Option{client.UintOption(message.ContentFormat, 0)}}, message.Changed, nil},
				{client.Request{Path: []string{"large-update"}}, message.Content, body},
				{client.Request{Path: []string{"large-update"}, NON: true}, message.Content, body},
				{client.Request{Path: []string{"test"}, Options: []client.Option{{ID: 65001, Value: []byte{1}}}}, message.BadOption, nil},
			} {
				m := do(t, conn, test.request)
				if m.Code != test.code || test.payload != nil && !bytes.Equal(m.Payload, test.payload) {
					t.Errorf("%s %v: %s with %d bytes, want %s", test.request.Method.Name(), test.request.Path, m.Code, len(m.Payload), test.code)
				}
				if _, ok := m.Option(message.OSCORE); ok {
					t.Error("the OSCORE option is still there")
				}
			}
			if m := do(t, conn, client.Request{Path: []string{"mycontext"}}); !bytes.Contains(m.Payload, []byte("oscore: test")) {
				t.Errorf("/mycontext: %s", m.Payload)
			}
			last, states := uint32(0), 0
			err = conn.Observe(t.Context(), client.ObserveConfig{Request: client.Request{Path: []string{"obs"}}}, func(n client.Notification) bool {
				if states > 0 && n.Sequence <= last {
					t.Errorf("sequence %d after %d", n.Sequence, last)
				}
				last = n.Sequence
				states++
				return states < 4
			})
			if err != nil || states != 4 {
				t.Errorf("%d states, %v", states, err)
			}
		})
	}
	for _, name := range []string{"malformed", "unknown", "replays", "forged", "challenges", "unsent"} {
		if n := server.Metric("weir_coap_oscore_" + name + "_total"); n != 0 {
			t.Errorf("%s: %v", name, n)
		}
	}
	if n := server.Await("weir_coap_oscore_requests_total", -1); n < 100 {
		t.Errorf("%v requests", n)
	}
}

// A resource that requires OSCORE answers 4.01 without it, and OSCORE with another key is refused as RFC 8613 section 8.2 says.
func TestOSCORERefusals(t *testing.T) {
	server := coaptest.Start(t, 1, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0", "--plugtest", "--workers", "1")
	plain, err := client.Dial(t.Context(), server.Uris[0], client.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if m := do(t, plain, client.Request{Path: []string{"oscore"}}); m.Code != message.Unauthorized {
		t.Errorf("without OSCORE: %s", m.Code)
	}
	for _, test := range []struct { // in this order: a forgery does not touch the replay window
		name   string
		change func(*oscore.Parameters)
	}{
		{"forged", func(p *oscore.Parameters) { p.MasterSecret = bytes.Repeat([]byte{7}, 16) }},
		{"unknown", func(p *oscore.Parameters) { p.SenderID = []byte{9} }},
		{"replays", func(*oscore.Parameters) {}},
	} {
		p, name := node.TestOSCORE(), test.name
		test.change(&p)
		for range 2 { // the same sequence number
			context, err := oscore.New(p, nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := client.Dial(t.Context(), server.Uris[0], client.DialConfig{Protector: oscore.NewClient(context, 2048)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = conn.Do(t.Context(), &client.Request{Path: []string{"oscore"}})
			conn.Close()
			if err != nil && !errors.Is(err, oscore.ErrUnprotected) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := server.Await("weir_coap_oscore_"+name+"_total", -1); n < 1 {
			t.Errorf("%s: counted %v", name, n)
		}
	}
}

// A server that was restarted does not take what it may have taken before: it asks for an Echo, which the client answers by itself,
// and sequence numbers go on.
func TestOSCORERestart(t *testing.T) {
	folder := t.TempDir()
	files := [2]string{filepath.Join(folder, "server.yaml"), filepath.Join(folder, "client.yaml")}
	for i, ids := range [2][2]string{{"02", "01"}, {"01", "02"}} {
		text := fmt.Sprintf("contexts:\n  - name: device\n    master_secret: \"%s\"\n    sender_id: \"%s\"\n    recipient_id: \"%s\"\n", strings.Repeat("ab", 16), ids[0], ids[1])
		if err := os.WriteFile(files[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	get := func(server *coaptest.Server) {
		t.Helper()
		out, _, err := clitest.Both(t, "coap", "get", server.Uris[0]+"/context", "--oscore", files[1])
		if err != nil || !strings.Contains(out, "oscore: device") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	for restart := range 2 {
		server := coaptest.Start(t, 1, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0", "--oscore", files[0])
		get(server)
		get(server)
		if n := server.Metric("weir_coap_oscore_challenges_total"); n != float64(restart) {
			t.Errorf("%d restarts: %v challenges", restart, n)
		}
		if n := server.Metric("weir_coap_oscore_replays_total"); n != 0 {
			t.Errorf("%d restarts: %v replays", restart, n)
		}
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}
}
