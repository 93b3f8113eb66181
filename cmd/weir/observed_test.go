package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// observed are running parts of Weir with traffic, and where a browser and Prometheus reach them.
type observed struct {
	processes map[string]*clitest.Process
	at        map[string]string // HOST:PORT by part
}

// observe starts a balancer with a backend that is down, two CoAP nodes, a TURN gateway with a client, and TCP testers that report.
func observe(t *testing.T) *observed {
	t.Helper()
	o := &observed{processes: map[string]*clitest.Process{}, at: map[string]string{}}
	free, echo := clitest.FreeAddresses(t, 8), []string{clitest.UDPEcho(t), clitest.UDPEcho(t)}
	file := filepath.Join(t.TempDir(), "weir.yaml")
	clitest.Must(t, os.WriteFile(file, []byte(announcing(t)+clitest.LBConfig(free[0], echo[0], echo[1], free[1])), 0o600))
	o.start(t, "lb", "lb", "run", "-c", file, "--datapath", "udp", "--log", "json")
	o.start(t, "coap", "coap", "server", "--listen", free[2], "--dtls-cluster", free[3]+";"+free[4]+";1,"+free[5]+";"+free[6]+";2", "--workers", "1")
	host, _, _ := net.SplitHostPort(free[7])
	o.start(t, "turn", "turn", "gateway", "turn://u:p@"+free[7], "--workers", "1", "--peers", "127.0.0.0/8")
	tunnel := clitest.FreeAddresses(t, 1)[0]
	child(t, "turn", "cat", "udp://"+tunnel, "turn://u:p@"+free[7]+"?transport=udp", "udp://"+peerOf(t, host))
	tcp := []string{clitest.FreeTCP(t).String(), clitest.FreeTCP(t).String()}
	o.at["tcp"] = tcp[0]
	child(t, "tcp", "stats", "--listen", tcp[0])
	child(t, "tcp", "server", "--listen", tcp[1], "--stats", tcp[0])
	child(t, "tcp", "client", "--to", tcp[1], "--connections", "20", "--rate", "100", "--heartbeat", "500ms", "--workers", "1", "--quiet", "--stats", tcp[0])
	send(t, free[0], []byte("to the balancer"), 40) // so many that the silent backend gets some, whatever the key of the hash
	send(t, tunnel, []byte("through the gateway"), 2)
	send(t, free[2], []byte{0x40, 0x01, 0x12, 0x34, 0xb4, 'e', 'c', 'h', 'o'}, 2) // a confirmable GET
	if out, code := clitest.Weir(t, "coap", "bench", "coaps://"+free[3]+"/benchmark?rlen=40", "--clients", "2", "--requests", "10", "--allow-errors"); code != 0 {
		t.Fatalf("DTLS: %s", out)
	}
	netlabtest.Eventually(t, "the silent backend is down", func() bool {
		list := clitest.HTTPGet(t, o.processes["lb"].Socket, "/events")
		return contains(list, `"event": "backend_silent"`)
	})
	return o
}

// announcing is a configuration that announces to a router that is not there.
func announcing(t *testing.T) string {
	router := clitest.FreeTCP(t)
	return fmt.Sprintf(`hash_key: 00112233445566778899aabbccddeeff
announce:
  bgp: {as: 64512, router_id: 192.0.2.11, report_after: 1s, neighbours: [{address: %s, port: %d, as: 64513}]}
`, router.Addr(), router.Port())
}

// start starts a part, and a proxy over TCP in front of its socket, as ssh -L is one.
func (o *observed) start(t *testing.T, name string, args ...string) {
	t.Helper()
	p := clitest.Start(t, name, args...)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", p.Socket)
		}},
	})
	t.Cleanup(proxy.Close)
	o.processes[name], o.at[name] = p, proxy.Listener.Addr().String()
}

// child runs a command without an admin API until the test ends.
func child(t *testing.T, args ...string) {
	t.Helper()
	out := new(clitest.LockedBuffer)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stdout, cmd.Stderr = out, out
	clitest.Must(t, clitest.StartChild(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("output of %v:\n%s", args, out)
		}
	})
}

// peerOf is a UDP echo at another address of loopback, because a gateway refuses peers at addresses of its own.
func peerOf(t *testing.T, gateway string) string {
	t.Helper()
	address := "127.66.0.9"
	if gateway == address {
		address = "127.66.0.10"
	}
	conn, err := net.ListenPacket("udp4", address+":0")
	clitest.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(b[:n], from)
		}
	}()
	return conn.LocalAddr().String()
}

// send sends a datagram from each of some clients ten times a second, until the test ends.
func send(t *testing.T, to string, datagram []byte, clients int) {
	t.Helper()
	conns := make([]net.Conn, clients)
	for i := range conns {
		var err error
		conns[i], err = net.Dial("udp4", to)
		clitest.Must(t, err)
		t.Cleanup(func() { conns[i].Close() })
	}
	go func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for t.Context().Err() == nil {
			for i := range conns {
				_, _ = conns[i].Write(datagram) // refused ones are counted by the part
			}
			<-ticker.C
		}
	}()
}
