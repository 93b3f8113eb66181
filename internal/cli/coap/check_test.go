package coap

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
)

// The command shows verdicts as a table, as JSON and as JUnit XML, and its exit code says what they are: 0 without a failure, 1 with one.
func TestCheckCommand(t *testing.T) {
	clitest.TakesSeconds(t)
	server := coaptest.Start(t, 1, "--listen", "127.0.0.1:0", "--plugtest")
	out, err := clitest.Execute(t, "coap", "check", server.Uris[0], "--only", "TD_COAP_CORE_01,link_01")
	if err != nil || !strings.Contains(out, "2 passed, 0 failed, 0 inconclusive") {
		t.Errorf("%v\n%s", err, out)
	}
	junit := filepath.Join(t.TempDir(), "check.xml")
	out, err = clitest.Execute(t, "coap", "check", server.Uris[0], "--only", "CORE_01,CORE_20,DTLS_01", "--path", "/multi-format=/test", "--json", "--junit", junit)
	if clitest.ExitCode(err) != 1 {
		t.Errorf("%v", err)
	}
	var got v1.CoAPCheck
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got.Passed != 1 || got.Failed != 1 || got.Inconclusive != 1 || len(got.Cases) != 3 {
		t.Errorf("%+v", got)
	}
	for _, c := range got.Cases {
		if c.ID == "TD_COAP_CORE_20" && (c.Expected == "" || c.Received == "" || c.Sent == "" || c.Reference == "" || len(c.Trace) < 2) {
			t.Errorf("%+v", c)
		}
	}
	text, err := os.ReadFile(junit)
	if err != nil {
		t.Fatal(err)
	}
	var suite struct {
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Cases    []struct{} `xml:"testcase"`
	}
	if err := xml.Unmarshal(text, &suite); err != nil || suite.Tests != 3 || suite.Failures != 1 || suite.Skipped != 1 || len(suite.Cases) != 3 {
		t.Errorf("%+v %v\n%s", suite, err, text)
	}
}

// What cannot be meant, and a server that is not there, end with exit code 2.
func TestCheckRefuses(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"coap://127.0.0.1", "--only", "NOTHING"}, `"NOTHING" names no case`},
		{[]string{"coap://127.0.0.1/test"}, "name the server alone"},
		{[]string{"coap://127.0.0.1", "--path", "/tests=/a"}, "is no path of the list"},
		{[]string{"coap://127.0.0.1", "--path", "/test=a"}, "does not begin with a slash"},
		{[]string{"coap://127.0.0.1", "--junit", t.TempDir()}, "is a directory"},
		{[]string{"coap://127.0.0.1", "--timeout", "0s"}, "give more than 0"},
		{[]string{"http://127.0.0.1"}, "scheme"},
		{[]string{}, "URI"},
		{[]string{"coap://127.0.0.1:1", "--timeout", "1s"}, ""}, // nobody there
	} {
		_, err := clitest.Execute(t, append([]string{"coap", "check"}, test.args...)...)
		if clitest.ExitCode(err) != 2 || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.args, err, test.want)
		}
	}
}
