package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

func TestBenchCoapUsage(t *testing.T) {
	for want, args := range map[string]string{
		`path "scenic" is not known`:  "bench coap --roads scenic",
		"not between 1 and 20000":     "bench coap --clients 0",
		"at least 1s and 100ms":       "bench coap --duration 1ms",
		"--interval -1s":              "bench coap --interval -1s",
		`--with "cf": write scandium`: "bench coap --with cf",
		"--with: peers run on":        "bench coap --datapath ebpf --with scandium",
	} {
		if _, _, err := clitest.Both(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// The benchmark runs real processes, and forwarding takes place in the path that is named after it.
func TestBenchCoap(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	out, _, err := clitest.Both(t, "bench", "coap", "--clients", "30", "--interval", "10ms", "--duration", "1s", "--warmup", "100ms", "--roads", "cluster,cluster-wrong-node", "--json")
	var results []*measure.Result
	if err != nil || json.Unmarshal([]byte(out), &results) != nil || len(results) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, r := range results {
		share := figure(r, "forwarded")
		if r.Requests == 0 || figure(r, "server CPU per request") <= 0 || figure(r, "lost sessions") != 0 || (share > 0.2) != (i == 1) || len(r.Samples) == 0 || r.Samples[0].Max == 0 {
			t.Errorf("%s: %d requests, forwarded %.2f, figures %+v, samples %+v", r.Path, r.Requests, share, r.Figures, r.Samples)
		}
	}
	var table bytes.Buffer
	if err := bench.WriteText(&table, results); err != nil || !strings.Contains(table.String(), "forwarding costs ") {
		t.Errorf("%v\n%s", err, table.String())
	}
	for _, peer := range []string{"Californium", "pion", "prototype"} {
		if strings.Contains(table.String(), peer) {
			t.Errorf("a figure of %s, which did not run:\n%s", peer, table.String())
		}
	}
}
