package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

func TestCoapClientUsage(t *testing.T) {
	for want, args := range map[string]string{
		"give one URI":               "coap get",
		"write coap://host/path":     "coap get http://localhost",
		"is no CoAP method":          "coap get coap://localhost --method STEAL",
		"is no content format":       "coap get coap://localhost --accept yaml",
		"--secret-hex":               "coap get coaps://localhost --secret-hex abc",
		"not between 0 and 32":       "coap get coaps://localhost --cid-length 33",
		"more than 0":                "coap bench coap://localhost --rebind-share 0",
		"give at least 1":            "coap bench coap://localhost --clients 0",
		"--clients: -1":              "coap bench coap://localhost --clients -1",
		"use each or shared":         "coap bench coap://localhost --sockets some",
		"--payload-size":             "coap bench coap://localhost --payload-size 8001",
		"rebind share":               "coap bench coap://localhost --rebind-share 1.5",
		"not between 1 and 20000":    "bench coap --clients 0",
		`path "scenic" is not known`: "bench coap --roads scenic",
		"at least 1s and 100ms":      "bench coap --duration 1ms",
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
	out, _, err := clitest.Both(t, "bench", "coap", "--clients", "30", "--duration", "1s", "--warmup", "500ms", "--roads", "cluster,cluster-wrong-node", "--json")
	var results []*measure.Result
	if err != nil || json.Unmarshal([]byte(out), &results) != nil || len(results) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, r := range results {
		share := figure(r, "forwarded")
		if r.Requests == 0 || figure(r, "server CPU per request") <= 0 || figure(r, "lost sessions") != 0 || (share > 0.2) != (i == 1) {
			t.Errorf("%s: %d requests, forwarded %.2f, figures %+v", r.Path, r.Requests, share, r.Figures)
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
