package coap

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
)

// loaded runs `weir coap bench` against a server, and fails unless everything was answered.
func loaded(t *testing.T, args ...string) v1.CoAPBenchStats {
	t.Helper()
	out, _, err := clitest.Both(t, append([]string{"coap", "bench", "--json", "--quiet"}, args...)...)
	var r v1.CoAPBench
	if err != nil || json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return r.Stats
}

// counts reads the statistics of a resource.
func counts(t *testing.T, uri, format string, into ...any) {
	t.Helper()
	out, _, err := clitest.Both(t, "coap", "post", uri, "--json")
	var x v1.CoAPExchange
	if err != nil || json.Unmarshal([]byte(out), &x) != nil {
		t.Fatal(err, out)
	}
	if n, err := fmt.Sscanf(x.Payload, format, into...); n != len(into) {
		t.Fatalf("%q: %v", x.Payload, err)
	}
}

// Weir's server observes Weir's clients, over UDP and DTLS, with confirmable and other notifications, and counts what they do.
func TestBenchReverseObserve(t *testing.T) {
	clitest.TakesSeconds(t)
	s := coaptest.Start(t, 2, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0")
	const clients, each = 4, 30
	for _, uri := range s.Uris {
		for _, resource := range []string{"feed-CON", "feed-NON"} {
			got := loaded(t, fmt.Sprintf("%s/reverse-observe?obs=10&res=%s&rlen=9", uri, resource), "--mode", "reverse-observe",
				"--clients", fmt.Sprint(clients), "--requests", fmt.Sprint(each))
			if got.Requests != clients*each || got.Errors+got.Lost+got.Failed != 0 {
				t.Errorf("%s %s: %+v", uri, resource, got)
			}
		}
	}
	active, notified := 0, 0
	counts(t, s.Uris[0]+"/reverse-observe", "%d active observes, %d notifies.", &active, &notified)
	// The clients went away with their observations. Those over UDP said nothing: they are forgotten when a registration fails.
	if active > 2*clients || notified < 4*clients*(each-1) {
		t.Errorf("%d active, %d notifications", active, notified)
	}
}

// The server sends requests to the clients of the benchmark.
func TestBenchReverseRequest(t *testing.T) {
	clitest.TakesSeconds(t)
	s := coaptest.Start(t, 2, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0")
	const clients, each = 4, 30
	for _, uri := range s.Uris {
		got := loaded(t, uri+"/reverse-request?req=10&res=feed-CON&rlen=9", "--mode", "reverse-request", "--clients", fmt.Sprint(clients),
			"--requests", fmt.Sprint(each))
		if got.Requests != clients*each || got.Served < clients*each || got.Errors+got.Lost+got.Failed != 0 {
			t.Errorf("%s: %+v", uri, got)
		}
	}
	requested, sent := 0, 0
	counts(t, s.Uris[0]+"/reverse-request", "%d reverse-requests, %d sent, ", &requested, &sent)
	if sent < 2*clients*each {
		t.Errorf("the server has sent %d requests of %d", sent, requested)
	}
}

// Sessions are resumed by the benchmark, each as often as it is made again, and both sides count the same; without the option, or by
// a server that does not offer it, none is.
func TestBenchResumes(t *testing.T) {
	clitest.TakesSeconds(t)
	const clients, each = 3, 4
	for _, test := range []struct {
		server, bench []string
		resumed       uint64
	}{
		{nil, []string{"--resume"}, clients * (each - 1)},
		{nil, nil, 0},
		{[]string{"--no-resumption"}, []string{"--resume"}, 0},
	} {
		s := coaptest.Start(t, 1, append([]string{"--dtls-only", "--dtls", "127.0.0.1:0"}, test.server...)...)
		got := loaded(t, append([]string{s.Uris[0] + "/benchmark", "--clients", fmt.Sprint(clients), "--requests", fmt.Sprint(each), "--handshake-every", "1"}, test.bench...)...)
		if got.Requests != clients*each || got.Handshakes < clients*each || got.Resumed < test.resumed || (got.Resumed > 0) != (test.resumed > 0) || got.Errors != 0 {
			t.Errorf("%q %q: %+v", test.server, test.bench, got)
		}
		if resumed := s.Await("weir_coap_engine_handshakes_resumed_total", float64(got.Resumed)); uint64(resumed) != got.Resumed {
			t.Errorf("the server has resumed %v, the clients %d", resumed, got.Resumed)
		}
	}
}

// The processor time of a server that is not there is an error, not 0.
func TestBenchOfNoServerProcess(t *testing.T) {
	s := coaptest.Start(t, 1, "--listen", "127.0.0.1:0", "--no-tcp", "--dtls", "127.0.0.1:0")
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]string{ended.Process.Pid: "server: no process ", -1: "-1 is no process id"} {
		_, _, err := clitest.Both(t, "coap", "bench", s.Uris[0]+"/benchmark", "--clients", "1", "--requests", "1", "-q", "--server-pid", fmt.Sprint(pid))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %s", pid, err, want)
		}
	}
}

// Every test of bench-all over UDP and DTLS succeeds with Weir's own server; those over TCP: TestBenchAllOverTCP.
func TestBenchAll(t *testing.T) {
	clitest.TakesSeconds(t)
	addresses := clitest.FreeAddresses(t, 2)
	s := clitest.Start(t, "server", "coap", "server", "--listen", addresses[0], "--dtls", addresses[1], "--notify-interval", "100ms")
	args := strings.Fields("coap bench-all 127.0.0.1 --clients 3 --observe-clients 3 --requests 5 --requests-large 2 --notifies 2 --reverse-notifies 5 --handshakes 2 --tcp=false --json --quiet --server-pid")
	args = append(args, fmt.Sprint(s.Cmd.Process.Pid)) // that of the supervisor
	for i, flag := range []string{"--plain-port", "--secure-port"} {
		args = append(args, flag, fmt.Sprint(netip.MustParseAddrPort(addresses[i]).Port()))
	}
	out, _, err := clitest.Both(t, args...)
	var runs []v1.CoAPBenchRun
	if broken := json.Unmarshal([]byte(out), &runs); err != nil || broken != nil {
		t.Errorf("%v, %v", err, broken)
	}
	for _, r := range runs {
		if r.Error != "" || r.Bench == nil {
			t.Errorf("%s: %q", r.Test, r.Error)
			continue
		}
		if p := r.Bench.Result.Processes; len(p) != 2 || p[0].Name != "client" || p[1].Name != "server" || p[1].CPU <= 0 || p[1].CPU > 10 {
			t.Errorf("%s: %+v", r.Test, p)
		}
	}
	if len(runs) < 2*7+2 {
		t.Errorf("%d tests", len(runs))
	}
}
