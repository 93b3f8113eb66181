package coap

import (
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/coap/client"
)

// Californium's client without DTLS: over UDP, of both versions, and over TCP, which version 4 does not have.
func TestCaliforniumPlain(t *testing.T) {
	clitest.TakesSeconds(t)
	buildCalifornium(t, 3) // first: it may skip
	s := coaptest.Start(t, 3, "--plugtest", "--notify-interval", "200ms", "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0", "--listen-tcp", "127.0.0.1:0")
	for _, c := range []struct {
		name  string
		major int
		class string
		base  string
	}{{"UDP", 3, "weir.Client", s.Uris[0]}, {"UDP4", 4, "weir.Client", s.Uris[0]}, {"TCP", 3, "weir.TcpClient", s.Uris[2]}} {
		t.Run(c.name, func(t *testing.T) {
			wantAnswers(t, startJava(t, c.major, c.class, "UDP"), c.base)
		})
	}
}

// Weir's client against Californium's server over UDP and TCP.
func TestClientOfCaliforniumPlain(t *testing.T) {
	clitest.TakesSeconds(t)
	address, host, port := serverAddress(t)
	startJava(t, 3, "weir.PlainServer", host, port)
	for _, scheme := range []string{"coap", "coap+tcp"} {
		t.Run(scheme, func(t *testing.T) { exercise(t, connect(t, scheme+"://"+address, client.Security{})) })
	}
}
