package coap

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Weir's own client changes its port all the time and proves each new one by the return routability check: long answers go
// on in full, nothing is withheld, lost or handshaken again.
func TestBenchProvesNewAddresses(t *testing.T) {
	s := coaptest.Start(t, 1, "--dtls-only", "--dtls", "127.0.0.1:0")
	root := clitest.Root()
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs([]string{
		"coap", "bench", s.Uris[0] + "/benchmark?rlen=1000", "--clients", "10", "--requests", "500", "--rebind-every", "5ms", "--json",
	})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	var result struct {
		Stats struct {
			Requests       int `json:"requests"`
			Lost           int `json:"lost"`
			Rehandshakes   int `json:"rehandshakes"`
			Rebinds        int `json:"rebinds"`
			PathChallenges int `json:"path_challenges"`
			FirstBlocks    int `json:"first_blocks"`
		} `json:"stats"`
	}
	if err := json.Unmarshal([]byte(out.String()), &result); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	b := result.Stats
	if b.Requests != 5000 || b.Lost != 0 || b.Rehandshakes != 0 || b.Rebinds == 0 || b.PathChallenges == 0 {
		t.Errorf("%+v", b)
	}
	// Of the answers to one address only those under way before its proof may be short.
	if b.FirstBlocks > 2*b.Rebinds {
		t.Errorf("%d answers in blocks for %d changes of address", b.FirstBlocks, b.Rebinds)
	}
	if n := s.Await("weir_coap_engine_addresses_proven_total", -1); n < 1 || s.Metric("weir_coap_engine_amplified_total") != 0 {
		t.Errorf("%v proven, %v withheld", n, s.Metric("weir_coap_engine_amplified_total"))
	}
}

// Other people's plain CoAP clients on a network, where a source could be forged, get everything that they request.
func TestRootUnprovenClients(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "coap-client-notls")
	lab := netlabtest.Up(t, netlab.Topology{
		Name:       "coapproof",
		Namespaces: []netlab.Namespace{{Name: "server"}, {Name: "client"}},
		Links:      []netlab.Link{netlab.Cable("server eth0 10.77.0.1/24", "client eth0 10.77.0.2/24")},
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log := &clitest.LockedBuffer{}
	server := exec.Command(self, append([]string{"coap", "server", "--listen", "10.77.0.1:5783", "--dtls", "127.0.0.1:0"}, quiet...)...)
	server.Stderr = log
	if err := lab.Namespace("server").Start(server); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	t.Cleanup(func() {
		_ = server.Process.Kill() // it may have ended
		<-ended
	})
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(log.String(), "coaps://"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server does not start: %s", log.String())
		}
	}
	const base = "coap://10.77.0.1:5783"
	for _, c := range []struct {
		name    string
		want    string
		command []string
	}{
		{"root", "CoAP and DTLS connection ids", []string{"coap-client-notls", "-B", "30", base + "/"}},
		{"root, not confirmable", "CoAP and DTLS connection ids", []string{"coap-client-notls", "-N", "-B", "30", base + "/"}},
		{"context", "server: Weir", []string{"coap-client-notls", "-B", "30", base + "/context"}},
		{"core", "</separate>", []string{"coap-client-notls", "-B", "30", base + "/.well-known/core"}},
		{"separate", "Code: 1 (GET)", []string{"coap-client-notls", "-B", "30", base + "/separate"}},
		{"long", "hello benchmark" + strings.Repeat("*", 2985), []string{"coap-client-notls", "-m", "post", "-B", "30", base + "/benchmark?rlen=3000"}},
		{"long, not confirmable", strings.Repeat("*", 2900), []string{"coap-client-notls", "-N", "-B", "30", base + "/benchmark?rlen=3000"}},
		{"get", "What you send here is not private.", []string{self, "coap", "get", base + "/"}},
		{"get in blocks", `title="answers separately"`, []string{self, "coap", "get", base + "/.well-known/core"}},
		{"get, not confirmable", "</separate>", []string{self, "coap", "get", "--non", base + "/.well-known/core"}},
		{"bench", "0 lost, 0 refused by the server", []string{self, "coap", "bench", base + "/benchmark?rlen=1000", "--clients", "5", "--requests", "100"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			output, err := lab.Namespace("client").Exec(t.Context(), c.command[0], c.command[1:]...)
			if err != nil || !strings.Contains(output, c.want) {
				t.Errorf("%v: %s lacks %q", err, output, c.want)
			}
		})
	}
}
