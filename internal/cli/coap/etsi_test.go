package coap

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/check"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

var updateETSI = flag.Bool("update-etsi", false, "write the verdicts of docs/coap-etsi.md")

const etsiPage = "../../../docs/coap-etsi.md"

// etsiPeer is a server whose verdicts the page has.
type etsiPeer struct {
	column int // of the table, from 0 for the id
	start  func(t *testing.T) (plain, secure string)
	config check.Config // without URI
	frail  bool         // it does not survive each case of OBS: each has a server of its own
	only   []string     // groups; nil: all
}

// The page says for each case what Weir's checker finds in other people's servers.
func TestVerdictsOfThePage(t *testing.T) {
	clitest.TakesSeconds(t)
	page := readVerdicts(t)
	for _, c := range check.Cases() {
		if page.cells[c.ID] == nil || page.cells[c.ID][1] != c.Title {
			t.Errorf("the page has %q for %s, want %q", page.cells[c.ID], c.ID, c.Title)
		} else if page.cells[c.ID][2] != check.Pass { // TestWeirPasses and TestWeirPassesRawKeys show that each passes
			t.Errorf("%s of Weir: %s", c.ID, page.cells[c.ID][2])
		}
	}
	if len(page.cells) != len(check.Cases()) {
		t.Errorf("%d rows, want %d", len(page.cells), len(check.Cases()))
	}
	for name, peer := range map[string]etsiPeer{
		"libcoap": {3, startLibcoapExample, check.Config{
			Paths:    map[string]string{"/obs": "/time", "/obs-non": "/time", "/separate": "/async?1"},
			Security: client.Security{Identity: "Client_identity", Secret: []byte("secretPSK")},
		}, true, nil},
		"aiocoap":     {4, startAiocoap, check.Config{}, true, nil},
		"Californium": {5, startCaliforniumPlugtest, check.Config{}, false, nil},
		"aiocoap example": {6, startAiocoapExample, check.Config{Paths: map[string]string{
			"/test": "/other/block", "/large": "/other/block", "/validate": "/other/block", "/separate": "/other/separate",
		}}, false, []string{"CORE", "LINK", "BLOCK"}}, // it has one resource to observe, and the library is that of the other column
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer.compare(t, page)
		})
	}
	t.Cleanup(func() { page.write(t) })
}

// compare runs the cases and compares their verdicts with the column of the page.
func (p *etsiPeer) compare(t *testing.T, page *verdicts) {
	const longest = "TD_COAP_OBS_05"
	var rest []string
	runs := [][]string{{longest}, {"CORE", "LINK", "BLOCK"}, {"DTLS"}}
	for _, c := range check.Cases() {
		switch {
		case c.Group() != "OBS" || c.ID == longest:
		case p.frail:
			runs = append(runs, []string{c.ID})
		default:
			rest = append(rest, c.ID)
		}
	}
	if rest != nil {
		runs = append(runs, rest)
	}
	if p.only != nil {
		runs = [][]string{p.only}
	}
	for _, only := range runs {
		t.Run(only[0], func(t *testing.T) {
			t.Parallel()
			plain, secure := p.start(t)
			cfg := p.config
			cfg.URI, cfg.Only, cfg.Timeout, cfg.Notify = plain, only, 8*time.Second, 8*time.Second
			if only[0] == "DTLS" {
				if secure == "" {
					return
				}
				cfg.URI = secure
			}
			out, err := check.Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range out.Cases {
				if want := page.cell(c.ID, p.column); c.Verdict != want && !*updateETSI {
					t.Errorf("%s: %s, the page has %s: %s\n%s", c.ID, c.Verdict, want, c.Reason, strings.Join(c.Trace, "\n"))
				}
				if *updateETSI {
					page.set(c.ID, p.column, c.Verdict)
					t.Logf("%s %s: %s", c.ID, c.Verdict, c.Reason)
				}
			}
		})
	}
}

// verdicts is the table of the page.
type verdicts struct {
	mu    sync.Mutex
	text  string
	cells map[string][]string // by id
}

func readVerdicts(t *testing.T) *verdicts {
	t.Helper()
	text, err := os.ReadFile(etsiPage)
	if err != nil {
		t.Fatal(err)
	}
	v := &verdicts{text: string(text), cells: map[string][]string{}}
	for line := range strings.Lines(v.text) {
		if cells := cellsOf(line); len(cells) > 4 && strings.HasPrefix(cells[0], "TD_COAP_") {
			v.cells[cells[0]] = cells
		}
	}
	return v
}

func cellsOf(line string) (cells []string) {
	for _, cell := range strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells
}

func (v *verdicts) cell(id string, column int) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if cells := v.cells[id]; column < len(cells) {
		return cells[column]
	}
	return ""
}

func (v *verdicts) set(id string, column int, verdict string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cells[id][column] = verdict
}

// write writes the table, with -update-etsi.
func (v *verdicts) write(t *testing.T) {
	if !*updateETSI {
		return
	}
	var b strings.Builder
	for line := range strings.Lines(v.text) {
		if cells := v.cells[cellsOf(line)[0]]; cells != nil {
			line = "| " + strings.Join(cells, " | ") + " |\n"
		}
		b.WriteString(line)
	}
	if err := os.WriteFile(etsiPage, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// answers waits until a server answers a ping.
func answers(t *testing.T, uri string) {
	t.Helper()
	netlabtest.Eventually(t, uri+" answers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn, err := client.Dial(ctx, uri, client.DialConfig{})
		if err != nil {
			return false
		}
		defer conn.Close()
		_, err = conn.Ping(ctx)
		return err == nil
	})
}

// startLibcoapExample starts the example server of libcoap 4.3.1, in which clients may create resources.
func startLibcoapExample(t *testing.T) (plain, secure string) {
	t.Helper()
	path, err := exec.LookPath("coap-server-openssl")
	if err != nil {
		t.Skip("not installed: libcoap3-bin")
	}
	help, _ := exec.Command(path, "-h").CombinedOutput() // its exit code is 1
	if !strings.Contains(string(help), "4.3.1") {
		t.Skip("the verdicts of the page are those of libcoap 4.3.1")
	}
	port := int(netlabtest.UDPPortPair(t))
	process := exec.Command(path, "-A", "127.0.0.1", "-p", fmt.Sprint(port), "-d", "20", "-k", "secretPSK")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	plain = fmt.Sprintf("coap://127.0.0.1:%d", port)
	answers(t, plain)
	return plain, fmt.Sprintf("coaps://127.0.0.1:%d", port+1)
}

// startAiocoap starts the resources of the list on aiocoap, with the pre-shared key of the list: its DTLS is tinydtls.
func startAiocoap(t *testing.T) (plain, secure string) {
	t.Helper()
	address, host, port := serverAddress(t)
	startPython(t, "aiocoap_plugtest.py", host, port)
	return "coap://" + address, after(t, "coaps://", address)
}

// startAiocoapExample starts the server that aiocoap's source package has as an example; without DTLS.
func startAiocoapExample(t *testing.T) (plain, secure string) {
	t.Helper()
	address, host, port := serverAddress(t)
	startPython(t, "aiocoap_example.py", host, port)
	return "coap://" + address, ""
}

// startCaliforniumPlugtest starts the resources of the list on Californium, with a pre-shared key and a raw public key.
func startCaliforniumPlugtest(t *testing.T) (plain, secure string) {
	t.Helper()
	port := int(netlabtest.UDPPortPair(t))
	startJava(t, 3, "weir.Plugtest", "127.0.0.1", fmt.Sprint(port))
	return fmt.Sprintf("coap://127.0.0.1:%d", port), fmt.Sprintf("coaps://127.0.0.1:%d", port+1)
}
