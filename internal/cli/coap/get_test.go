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
