package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// command runs one command line in this process.
func command(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := newRootCommand()
	root.SetArgs(args)
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	err = root.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestCoapGetAndBench(t *testing.T) {
	addresses := freeAddresses(t, 2)
	startProcess(t, "server", "coap", "server", "--workers", "1", "--listen", addresses[0], "--dtls", addresses[1])

	out, _, err := command(t, "coap", "get", "coaps://"+addresses[1]+"/mycontext")
	if err != nil || !strings.Contains(out, ">>> TLS_PSK_WITH_AES_128_CCM_8\n") || !strings.Contains(out, "Status : 2.05 - CONTENT\n") {
		t.Errorf("get: %v\n%s", err, out)
	}
	out, _, err = command(t, "coap", "get", "coaps://"+addresses[1]+"/mycontext", "--json", "--accept", "json", "--identity", "Client_identity", "--secret", "secretPSK")
	var got struct {
		Code, Payload string
		Session       struct{ Identity string }
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Code != "2.05" || got.Session.Identity != "Client_identity" || !strings.Contains(got.Payload, `"peer":"Client_identity"`) {
		t.Errorf("get --json: %v\n%s", err, out)
	}
	_, _, err = command(t, "coap", "get", "coap://"+addresses[0]+"/nowhere")
	var exit *exitError
	if !errors.As(err, &exit) || exit.code != exitFailure || exit.err != nil {
		t.Errorf("an error response: %#v, want exit code 1 and no further text", err)
	}

	for _, uri := range []string{"coap://" + addresses[0], "coaps://" + addresses[1]} {
		out, progress, err := command(t, "coap", "bench", uri+"/benchmark?rlen=40", "--clients", "10", "--requests", "20", "--json")
		var result struct {
			Result *measure.Result
			Stats  struct{ Requests, Lost, Handshakes int }
		}
		if err != nil || json.Unmarshal([]byte(out), &result) != nil || result.Stats.Requests != 200 || result.Result.Latency.Count() != 200 {
			t.Errorf("bench --json: %v\n%s", err, out)
		}
		want := regexp.MustCompile(`^Benchmark clients, first request successful\.
Benchmark clients created\. \d+ ms, \d+ clients/s
Benchmark started\.
(?:\d+ requests \(\d+ reqs/s, \d+ retransmissions \(\d+,\d\d%\), \d+ transmission errors \(\d+,\d\d%\), \d+ clients\)
)+$`)
		if !want.MatchString(progress) {
			t.Errorf("progress:\n%s", progress)
		}
	}
	out, _, err = command(t, "coap", "bench", "coaps://"+addresses[1]+"/benchmark", "--clients", "32", "--requests", "20", "--sockets", "shared")
	if err != nil || !strings.Contains(out, "640 requests in ") || !strings.Contains(out, "32 handshakes, 0 re-handshakes") {
		t.Errorf("bench with shared sockets: %v\n%s", err, out)
	}
}

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
		if _, _, err := command(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// The benchmark runs real processes, and forwarding takes place in the path that is named after it.
func TestBenchCoap(t *testing.T) {
	if !ownProcess(t) {
		return
	}
	out, _, err := command(t, "bench", "coap", "--clients", "30", "--duration", "1s", "--warmup", "500ms", "--roads", "cluster,cluster-wrong-node", "--json")
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
