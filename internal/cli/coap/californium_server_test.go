package coap

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
)

// The Californium server that `weir bench run floods` compares with serves Weir's client. Building it puts it where the
// benchmark looks for it.
func TestCaliforniumServer(t *testing.T) {
	clitest.TakesSeconds(t)
	buildCalifornium(t, 3)
	address := clitest.FreeAddresses(t, 1)[0]
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	server := startJava(t, 3, "weir.Server", host, port, "100")
	defer server.process.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it has no other end
	if _, err := client.Do(t.Context(), client.RequestConfig{URI: "coaps://" + address + "/", Timeout: time.Minute}); err != nil {
		t.Error(err)
	}
}

// That server joins `weir bench coap`: its requests and its processor time are counted, and the run says the ratio.
func TestCaliforniumServerJoinsTheBenchmark(t *testing.T) {
	clitest.TakesSeconds(t)
	buildCalifornium(t, 3)
	config := bench.CoapConfig{
		Run: bench.Run{Binary: os.Args[0]}, Clients: 5, Interval: 10 * time.Millisecond, Warmup: 100 * time.Millisecond, Duration: time.Second,
		Paths: []string{"direct"}, With: bench.CoapPeers(),
	}
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	results, err := bench.Coap(t.Context(), config)
	if err != nil || len(results) != 2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	peer := results[1]
	if cost := peer.CPUPerRequest("servers"); peer.Path != "scandium" || peer.Requests == 0 || cost <= 0 || peer.Latency.Count() < peer.Requests || peer.Parameters["peer"] != "yes" {
		t.Errorf("%s: %d requests, %d times, %v a request, %v", peer.Path, peer.Requests, peer.Latency.Count(), cost, peer.Parameters)
	}
	var table strings.Builder
	if err := bench.WriteText(&table, results); err != nil || !strings.Contains(table.String(), "a DTLS request costs Californium's server (scandium) ") {
		t.Errorf("%v\n%s", err, table.String())
	}
}
