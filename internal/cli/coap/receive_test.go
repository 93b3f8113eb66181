package coap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
)

// The programs together: 300 requests to Weir's own server through a balancer that loses 5 % each way: what the test says was lost is what the
// balancer has dropped, each way. TestReceiveThroughALossyBalancerInVirtualTime of package node has ten minutes of them.
func TestReceiveThroughALossyBalancer(t *testing.T) {
	clitest.TakesSeconds(t)
	server := coaptest.Start(t, 1, "--listen", "127.0.0.1:0")
	vip := clitest.FreeAddresses(t, 1)[0]
	nat := clitest.Start(t, "nat", "nat", vip, "--", strings.TrimPrefix(server.Uris[0], "coap://"), "-f", "5", "-b", "5", "--seed", "7")
	state := filepath.Join(t.TempDir(), "state.json")
	page := filepath.Join(t.TempDir(), "page.html")
	var got v1.CoAPReceive
	for _, count := range []string{"200", "100"} { // it goes on where it was
		out, _, err := clitest.Both(t, "coap", "receive", "coap://"+vip+"/requests", "--interval", "10ms", "--timeout", "6s", "--count", count,
			"--state", state, "--part", "300ms", "--report", page, "--json", "--quiet")
		if err != nil || json.Unmarshal([]byte(out), &got) != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	status, err := nat.Admin.NATStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, want := got.Totals, status.NAT.Counters
	if c.Sent < 300 || c.Sent != want.Received || c.LostRequests != want.LostForward || c.LostResponses != want.LostBackward || c.Unknown != 0 || got.Open != 0 ||
		c.Sent != c.Answered+c.LostRequests+c.LostResponses {
		t.Errorf("%+v, the balancer received %d and lost %d there and %d back", c, want.Received, want.LostForward, want.LostBackward)
	}
	if c.LostRequests < 5 || c.LostResponses < 5 {
		t.Errorf("too few losses to distinguish: %+v", c)
	}
	sent := uint64(0)
	for _, part := range got.History {
		sent += part.Counts.Sent
	}
	if sent != c.Sent || len(got.History) < 8 {
		t.Errorf("%d parts with %d requests of %d", len(got.History), sent, c.Sent)
	}
	if text, err := os.ReadFile(page); err != nil || !bytes.Contains(text, []byte("<svg")) || !bytes.Contains(text, []byte("Lost on the way")) || !bytes.Contains(text, []byte("max: ")) {
		t.Errorf("the report: %v", err)
	}
	out, _, err := clitest.Both(t, "coap", "receive", "coap://"+vip+"/requests", "--state", state, "--show")
	if err != nil || !strings.Contains(out, "requests lost (") || !strings.Contains(out, "FROM") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%+v", c)
}

// Over TCP and TLS nothing is lost while the connection stands.
func TestReceiveOverStreams(t *testing.T) {
	clitest.TakesSeconds(t)
	dir := makeCerts(t)
	s := coaptest.Start(t, 3, "--dtls", "127.0.0.1:0", "--listen-tcp", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0",
		"--certificate", dir+"/server.pem", "--private-key", dir+"/server-key.pem")
	for _, uri := range s.Uris[1:] {
		args := []string{"coap", "receive", uri + "/requests", "--interval", "10ms", "--timeout", "15s", "--count", "40", "--json", "--quiet"}
		if strings.HasPrefix(uri, "coaps") {
			args = append(args, "--trust", dir+"/trust-server.pem")
		}
		var got v1.CoAPReceive
		out, _, err := clitest.Both(t, args...)
		if err != nil || json.Unmarshal([]byte(out), &got) != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if c := got.Totals; c.Sent < 40 || c.Answered != c.Sent || got.Open != 0 || got.ServerRestarts+got.AddressChanges != 0 {
			t.Errorf("%s: %+v", uri, got)
		}
	}
}

// Over DTLS too, Weir's server reports where a request came from: as in JSON also in CBOR, where a port is a signed number of 16 bits.
func TestReceiveOverDTLS(t *testing.T) {
	clitest.TakesSeconds(t)
	s := coaptest.Start(t, 1, "--dtls-only", "--dtls", "127.0.0.1:0")
	uri := s.Uris[0] + "/requests"
	state := filepath.Join(t.TempDir(), "state.json")
	var got v1.CoAPReceive
	out, _, err := clitest.Both(t, "coap", "receive", uri, "--interval", "10ms", "--timeout", "15s", "--count", "40", "--state", state, "--cbor", "--json", "--quiet")
	if err != nil || json.Unmarshal([]byte(out), &got) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if c := got.Totals; c.Sent < 40 || c.Answered != c.Sent || got.Open != 0 || got.ServerRestarts+got.AddressChanges != 0 {
		t.Errorf("%+v", got)
	}
	var kept struct{ Address string }
	text, err := os.ReadFile(state)
	if err != nil || json.Unmarshal(text, &kept) != nil || !strings.HasPrefix(kept.Address, "127.0.0.1:") {
		t.Errorf("%v: %s", err, text)
	}

	post := func(id string, args ...string) string {
		t.Helper()
		out, _, err := clitest.Both(t, append([]string{"coap", "post", uri + "?dev=port&ep&rid=" + id}, args...)...)
		if err != nil {
			t.Fatal(err, out)
		}
		return out
	}
	inCBOR := regexp.MustCompile(`"port": (-?[0-9]+)`).FindStringSubmatch(post("first", "--accept", "cbor"))
	var x v1.CoAPExchange
	if err := json.Unmarshal([]byte(post("second", "--accept", "json", "--json")), &x); err != nil {
		t.Fatal(err)
	}
	var entries []struct {
		ID   string `json:"rid"`
		Port uint16
	}
	if err := json.Unmarshal([]byte(x.Payload), &entries); err != nil || len(entries) != 3 || entries[2].ID != "first" || inCBOR == nil {
		t.Fatalf("%v: %+v, %q", err, entries, inCBOR)
	}
	if want := fmt.Sprint(int16(entries[2].Port)); inCBOR[1] != want {
		t.Errorf("port %d is %s in CBOR, want %s", entries[2].Port, inCBOR[1], want)
	}
}

func TestReceiveUsage(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte(`{"device":""}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string]string{
		"no path":                          "coap receive coap://localhost",
		"give the file with --state":       "coap receive coap://localhost/requests --show",
		"--part must be at least 1ms":      "coap receive coap://localhost/requests --part 0s",
		"no such file":                     "coap receive coap://localhost/requests --show --state /nowhere/state",
		"name another file to begin again": "coap receive coap://localhost/requests --state " + broken,
		"is too long for an interval of 1": "coap receive coap://localhost/requests --interval 1ms --timeout 1h",
	} {
		if _, _, err := clitest.Both(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
