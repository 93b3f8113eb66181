package coap

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

func TestCoapGetAndBench(t *testing.T) {
	addresses := clitest.FreeAddresses(t, 2)
	clitest.Start(t, "server", "coap", "server", "--workers", "1", "--listen", addresses[0], "--dtls", addresses[1])

	out, _, err := clitest.Both(t, "coap", "get", "coaps://"+addresses[1]+"/mycontext")
	if err != nil || !strings.Contains(out, ">>> TLS_PSK_WITH_AES_128_CCM_8\n") || !strings.Contains(out, "Status : 2.05 - CONTENT\n") {
		t.Errorf("get: %v\n%s", err, out)
	}
	out, _, err = clitest.Both(t, "coap", "get", "coaps://"+addresses[1]+"/mycontext", "--json", "--accept", "json", "--identity", "Client_identity", "--secret", "secretPSK")
	var got struct {
		Code, Payload string
		Session       struct{ Identity string }
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Code != "2.05" || got.Session.Identity != "Client_identity" || !strings.Contains(got.Payload, `"peer":"Client_identity"`) {
		t.Errorf("get --json: %v\n%s", err, out)
	}
	_, _, err = clitest.Both(t, "coap", "get", "coap://"+addresses[0]+"/nowhere")
	var exit *cli.ExitError
	if !errors.As(err, &exit) || exit.Code != cli.ExitFailure || exit.Err != nil {
		t.Errorf("an error response: %#v, want exit code 1 and no further text", err)
	}

	for _, uri := range []string{"coap://" + addresses[0], "coaps://" + addresses[1]} {
		out, progress, err := clitest.Both(t, "coap", "bench", uri+"/benchmark?rlen=40", "--clients", "10", "--requests", "20", "--json")
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
(?:\d+ requests \(\d+ reqs/s, \d+ retransmissions \(\d+\.\d\d%\), \d+ transmission errors \(\d+\.\d\d%\), \d+ clients\)
)+$`)
		if !want.MatchString(progress) {
			t.Errorf("progress:\n%s", progress)
		}
	}
	out, _, err = clitest.Both(t, "coap", "bench", "coaps://"+addresses[1]+"/benchmark", "--clients", "32", "--requests", "20", "--sockets", "shared")
	if err != nil || !strings.Contains(out, "640 requests in ") || !strings.Contains(out, "32 handshakes, 0 re-handshakes") {
		t.Errorf("bench with shared sockets: %v\n%s", err, out)
	}
}

// Every test runs that the server knows; one that it does not know is shown with its error and stops nothing.
func TestCoapBenchAll(t *testing.T) {
	clitest.TakesSeconds(t)
	if out, code := clitest.Weir(t, "coap", "bench", "all", "localhost"); code != 2 || !strings.Contains(out, "weir coap bench-all HOST") {
		t.Errorf("bench all: exit code %d: %s", code, out)
	}
	addresses := clitest.FreeAddresses(t, 2)
	clitest.Start(t, "server", "coap", "server", "--workers", "1", "--listen", addresses[0], "--dtls", addresses[1])
	args := []string{
		"coap", "bench-all", "127.0.0.1", "--plain-port", addresses[0][len("127.0.0.1:"):], "--secure-port", addresses[1][len("127.0.0.1:"):],
		"--clients", "4", "--requests", "5", "--requests-large", "2", "--handshakes", "3", "--quiet", "--tcp=false",
	}
	out, _, err := clitest.Both(t, append(args, "--tests", "con,separate,non,blocks,handshakes", "--resource-path", "benchmark", "--json", "--allow-errors")...)
	var runs []struct {
		Test, Error string
		Bench       struct {
			Stats struct{ Requests, Handshakes, Errors int }
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &runs) != nil || len(runs) != 11 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, r := range runs {
		want := 20
		switch {
		case strings.HasSuffix(r.Test, " blocks"):
			want = 8
		case strings.Contains(r.Test, "handshakes"):
			if want = 12; r.Bench.Stats.Handshakes != 12 {
				t.Errorf("%s: %d handshakes", r.Test, r.Bench.Stats.Handshakes)
			}
		}
		if r.Bench.Stats.Requests != want || r.Bench.Stats.Errors != 0 || r.Error != "" && !strings.HasSuffix(r.Test, "resumed") {
			t.Errorf("%+v, want %d requests", r, want)
		}
	}
	out, _, err = clitest.Both(t, append(args, "--tests", "con,non", "--resource-path", "nowhere", "--secure=false")...)
	if err == nil || !strings.Contains(err.Error(), "2 of 2 tests failed") || strings.Count(out, "response 4.04 NOT FOUND") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
	for want, args := range map[string]string{
		"give one host":        "coap bench-all coap://localhost",
		`--tests: "some"; use`: "coap bench-all localhost --tests some",
		"between 0 and 8000":   "coap bench-all localhost --payload-size 9000",
	} {
		if _, _, err := clitest.Both(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// An answer is printed whole whatever the method, and a refused key is called one by every command.
func TestCoapGetIsWholeOrSaysWhyNot(t *testing.T) {
	clitest.TakesSeconds(t)
	addresses := clitest.FreeAddresses(t, 2)
	clitest.Start(t, "server", "coap", "server", "--workers", "1", "--listen", addresses[0], "--dtls", addresses[1])
	for _, uri := range []string{"coap://" + addresses[0], "coaps://" + addresses[1]} {
		out, _, err := clitest.Both(t, "coap", "get", uri+"/benchmark?rlen=3000", "--method", "POST", "--payload", "hi")
		if err != nil || !strings.Contains(out, "Payload: 3000 Bytes\n") || strings.Contains(out, "m=true") {
			t.Errorf("%s: %v\n%s", uri, err, out)
		}
	}
	for _, args := range [][]string{{"get"}, {"bench", "--clients", "1", "--requests", "1", "--quiet"}} {
		_, _, err := clitest.Both(t, append(append([]string{"coap"}, args...), "coaps://"+addresses[1]+"/benchmark", "--secret", "wrong")...)
		if err == nil || !strings.Contains(err.Error(), "identity or key refused") {
			t.Errorf("%v with another key: %v", args, err)
		}
	}
}
