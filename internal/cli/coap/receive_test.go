package coap

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/message"
)

// rememberer is the resource /requests of Californium's extended plugtest server, without DTLS: it remembers the newest 24 requests
// of each device and answers with as many of them as fit rlen bytes.
func rememberer(t *testing.T) (address string) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	type entry struct {
		ID   string `json:"rid"`
		Time int64  `json:"time"`
		EP   string `json:"ep"`
		Port uint16 `json:"port"`
	}
	devices := map[string][]entry{}
	go func() {
		in := make([]byte, 2048)
		for n := uint16(1); ; n++ {
			size, from, err := conn.ReadFromUDPAddrPort(in)
			if err != nil {
				return
			}
			var m message.Message
			if message.Parse(in[:size], &m) != nil || m.Code != message.POST {
				continue
			}
			query := map[string]string{}
			for options := m.Options(); options.Next(); {
				if name, value, _ := strings.Cut(string(options.Value()), "="); options.ID() == message.URIQuery {
					query[name] = value
				}
			}
			kept := devices[query["dev"]]
			kept = append([]entry{{query["rid"], 1, from.Addr().String(), from.Port()}}, kept[:min(len(kept), 23)]...)
			devices[query["dev"]] = kept
			var text []byte
			for left := len(kept); ; left-- {
				list := []any{map[string]int{"systemstart": 17}}
				for _, e := range kept[:left] {
					list = append(list, e)
				}
				if text, err = json.Marshal(list); err != nil || len(text) <= 1000 && query["rlen"] == "1000" {
					break
				}
			}
			var b message.Builder
			b.Reset(make([]byte, 0, 2048), message.Non, message.Changed, n, m.Token)
			b.Uint(message.ContentFormat, uint32(message.JSON))
			b.Payload(text)
			if answer, err := b.Bytes(); err == nil {
				_, _ = conn.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
	return conn.LocalAddr().String()
}

// 600 requests, ten minutes of them at the default interval, through a balancer that loses 5 % each way: what the test says was lost
// is what the balancer has dropped, each way. Time runs 50 times as fast: a request every 20 ms instead of every second.
func TestReceiveThroughALossyBalancer(t *testing.T) {
	clitest.TakesSeconds(t)
	vip := clitest.FreeAddresses(t, 1)[0]
	nat := clitest.Start(t, "nat", "nat", vip, "--", rememberer(t), "-f", "5", "-b", "5", "--seed", "7")
	state := filepath.Join(t.TempDir(), "state.json")
	page := filepath.Join(t.TempDir(), "page.html")
	var got v1.CoAPReceive
	for _, count := range []string{"400", "200"} { // it goes on where it was
		out, _, err := clitest.Both(t, "coap", "receive", "coap://"+vip+"/requests", "--interval", "20ms", "--timeout", "15s", "--count", count,
			"--state", state, "--part", "1200ms", "--report", page, "--json", "--quiet")
		if err != nil || json.Unmarshal([]byte(out), &got) != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	status, err := nat.Admin.NATStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, want := got.Totals, status.NAT.Counters
	if c.Sent < 600 || c.Sent != want.Received || c.LostRequests != want.LostForward || c.LostResponses != want.LostBackward || c.Unknown != 0 || got.Open != 0 ||
		c.Sent != c.Answered+c.LostRequests+c.LostResponses {
		t.Errorf("%+v, the balancer received %d and lost %d there and %d back", c, want.Received, want.LostForward, want.LostBackward)
	}
	if c.LostRequests < 10 || c.LostResponses < 10 {
		t.Errorf("too few losses to tell apart: %+v", c)
	}
	sent := uint64(0)
	for _, part := range got.History {
		sent += part.Counts.Sent
	}
	if sent != c.Sent || len(got.History) < 8 {
		t.Errorf("%d parts with %d requests of %d", len(got.History), sent, c.Sent)
	}
	if text, err := os.ReadFile(page); err != nil || !bytes.Contains(text, []byte("<svg")) || !bytes.Contains(text, []byte("Lost on the way")) {
		t.Errorf("the report: %v", err)
	}
	out, _, err := clitest.Both(t, "coap", "receive", "coap://"+vip+"/requests", "--state", state, "--show")
	if err != nil || !strings.Contains(out, "requests lost (") || !strings.Contains(out, "FROM") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%+v", c)
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
		"name another file to begin anew":  "coap receive coap://localhost/requests --state " + broken,
		"is too long for an interval of 1": "coap receive coap://localhost/requests --interval 1ms --timeout 1h",
	} {
		if _, _, err := clitest.Both(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
