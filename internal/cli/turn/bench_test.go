package turn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// turnResult is what --json prints.
type turnResult struct {
	*measure.Result
	More struct {
		Connections []struct {
			ID      int    `json:"id"`
			Total   uint64 `json:"total"`
			Latency bool   `json:"latency"`
		} `json:"connections"`
		Sum struct {
			Total uint64 `json:"total"`
			Lost  uint64 `json:"lost"`
		} `json:"sum"`
	}
}

func (r *turnResult) UnmarshalJSON(text []byte) error {
	r.Result = new(measure.Result)
	if err := json.Unmarshal(text, r.Result); err != nil {
		return err
	}
	return json.Unmarshal(text, &r.More)
}

// turnBench runs the command as this test binary and checks what every run must have: traffic on each path, its connections,
// and a report that can be drawn again.
func turnBench(t *testing.T, paths []string, clients int, args ...string) []turnResult {
	t.Helper()
	page := filepath.Join(t.TempDir(), "turn.html")
	out, err := clitest.Execute(t, append([]string{"turn", "bench", "--duration", "500ms", "--size", "200", "--bandwidth", "400k", "--platform", "local", "--json", "--report", page}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var results []turnResult
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != len(paths) {
		t.Fatalf("%d results, %v\n%s", len(results), err, out)
	}
	for i, r := range results {
		if r.Path != paths[i] || r.Requests == 0 || r.Requests+r.Errors != r.More.Sum.Total || r.More.Sum.Lost != r.Errors || len(r.More.Connections) != clients {
			t.Errorf("%s: %d arrived, %d lost, %+v; want path %s", r.Path, r.Requests, r.Errors, r.More, paths[i])
		}
		for _, c := range r.More.Connections {
			if c.Total == 0 || !c.Latency {
				t.Errorf("%s: connection %+v", r.Path, c)
			}
		}
		for _, p := range r.Processes {
			if p.CPU <= 0 && r.Parameters["offload"] == "none" {
				t.Errorf("%s: %s spent %v", r.Path, p.Name, p.CPU)
			}
		}
	}
	clitest.DrawsReportAgain(t, out, page)
	return results
}

func TestTurnBenchThroughTurncats(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	turnBench(t, []string{"direct", "weir cat"}, 2, "--clients", "2", "--generator", "builtin")
}

func TestTurnBenchWithChannelData(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	turnBench(t, []string{"direct", "weir"}, 3, "--clients", "3", "--road", "direct-channel")
}

func TestTurnBenchWithCoturn(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	netlabtest.Tools(t, "turnserver")
	turnBench(t, []string{"direct", "weir cat", "coturn cat"}, 1, "--clients", "1", "--generator", "builtin", "--with", "coturn")
}

// STUNner's own server and coturn in one run. Where STUNner's is not installed the run is refused.
func TestTurnBenchWithStunner(t *testing.T) {
	netlabtest.Tools(t, "turnserver")
	stunnerd := os.Getenv("WEIR_STUNNERD")
	if stunnerd == "" {
		stunnerd = "stunnerd"
	}
	if _, err := exec.LookPath(stunnerd); err != nil {
		clitest.RefusesWithoutPeer(t, "$WEIR_STUNNERD", "turn", "bench", "--road", "direct-channel", "--with", "coturn,stunnerd")
		return
	}
	turnBench(t, []string{"direct", "weir", "coturn", "stunnerd"}, 1, "-n", "1", "--road", "direct-channel", "--with", "coturn,stunnerd")
}

// Over TCP, each way; behind turncats too.
func TestTurnBenchOverTCP(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	netlabtest.Tools(t, "turnserver")
	for _, direction := range []string{bench.DirectionUp, bench.DirectionDown} {
		results := turnBench(t, []string{"direct", "weir", "coturn"}, 2, "--clients", "2", "--road", "direct-channel", "--transport", "tcp", "--direction", direction, "--with", "coturn")
		if p := results[1].Parameters; p["transport"] != "tcp" || p["direction"] != direction {
			t.Errorf("parameters %v", p)
		}
	}
	turnBench(t, []string{"direct", "weir cat"}, 1, "--clients", "1", "--generator", "builtin", "--transport", "tcp")
}

func TestTurnBenchByIperf(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	netlabtest.Tools(t, "iperf")
	turnBench(t, []string{"direct", "weir cat"}, 2, "--clients", "2", "--generator", "iperf")
}

// With an offload everything arrives too, on hosts of their own, and the report says which.
func TestRootTurnBenchOffload(t *testing.T) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	for _, mode := range []string{"tcx", "xdp"} {
		t.Run(mode, func(t *testing.T) {
			results := turnBench(t, []string{"direct", "weir"}, 2, "--clients", "2", "--road", "direct-channel", "--offload", mode)
			if offload := results[1].Parameters["offload"]; !strings.Contains(offload, mode+" on ") {
				t.Errorf("the gateway's offload is %q", offload)
			}
		})
	}
}

// One size over the gateway: what it costs at a rate, and what rate it carries.
func TestTurnBenchSweeps(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	out, err := clitest.Execute(t, "turn", "bench", "--sweep", "--sizes", "100", "--rates", "2k", "--rounds", "1", "--probe", "200ms", "--most", "4k", "--duration", "300ms", "--road", "direct-channel", "--json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var results []turnResult
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 3 {
		t.Fatalf("%d results, %v\n%s", len(results), err, out)
	}
	for i, want := range []string{"direct 2000", "weir 2000", "weir highest"} {
		r := results[i]
		if got := r.Path + " " + r.Parameters["rate"]; got != want || r.Parameters["packet_bytes"] != "100" {
			t.Errorf("result %d is %s, want %s", i, got, want)
		}
		if r.Parameters["rate"] == "2000" && r.Requests == 0 {
			t.Errorf("%s: nothing arrived", want)
		}
	}
	if why := results[2].Parameters["limited_by"]; why == "" {
		t.Error("nothing says what ended the search")
	}
}

func TestTurnBenchRefusals(t *testing.T) {
	for want, args := range map[string]string{
		"platform k8s measures the gateway that runs in the cluster":       "--platform k8s --sweep",
		"--gateway \"media\": write NAMESPACE/GATEWAY:LISTENER":            "--platform k8s --gateway media",
		"--peer \"x\": write service or pod":                               "--platform k8s --peer x",
		"--gateway is about --platform k8s":                                "--gateway media/udp-gateway:udp-listener",
		"--bandwidth: \"10X\": write a number such as 100000, 100k or 10M": "--bandwidth 10X",
		"--duration -1s: write a length":                                   "--duration -1s",
		"--rates: \"x\"":                                                   "--rates 20k,x",
		"--most: \"a\"":                                                    "--most a",
		"iperf has no TURN":                                                "--road direct-channel --generator iperf",
		"it needs --road direct-channel":                                   "--direction down",
		`transport "sctp": write udp, tcp`:                                 "--transport sctp",
		"packets of 8 bytes: want 40 to 1472":                              "--size 8",
	} {
		var exit *cli.ExitError
		_, err := clitest.Execute(t, append([]string{"turn", "bench"}, strings.Fields(args)...)...)
		if !errors.As(err, &exit) || exit.Code != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestBitsAreReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]float64{"100000": 100000, "100k": 100e3, "10M": 10e6, "10m": 10e6, "1.5G": 1.5e9} {
		if got, err := parseBits(text); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "k", "10X", "NaN", "Inf", "1kk"} {
		if got, err := parseBits(text); err == nil {
			t.Errorf("%q became %v", text, got)
		}
	}
}

// An interrupt in the middle of a load ends everything that was started.
func TestTurnBenchInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	_, err := bench.Turn(ctx, bench.TurnConfig{
		Clients: 2, Duration: time.Minute, Size: 100, Bandwidth: 1e6, Platform: "local", Path: bench.TurnPathCat,
		Generator: bench.GeneratorBuiltin, Offload: "none", Network: bench.NetworkAuto, Transport: bench.TransportUDP, Direction: bench.DirectionUp,
		Run: bench.Run{Binary: os.Args[0], Progress: func(_ float64, what string) {
			if strings.HasPrefix(what, "direct: 1 of") || strings.HasPrefix(what, "direct: 0 of") {
				cancel()
			}
		}},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", os.Getpid())); len(bytes.TrimSpace(children)) > 0 {
		t.Errorf("children are left: %s", children)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "weir-scratch-*")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// Killed, a benchmark leaves files and perhaps namespaces, which the next start takes away; interrupted twice it leaves nothing.
func TestTurnBenchKilled(t *testing.T) {
	temp, err := os.MkdirTemp("", "wt") // short: sockets lie within
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temp) })
	t.Setenv("TMPDIR", temp)
	for name, signals := range map[string][]os.Signal{"killed": {os.Kill}, "interrupted twice": {os.Interrupt, os.Interrupt}} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "turn", "bench", "--clients", "1", "--duration", "10m", "--generator", "builtin")
			output := new(clitest.LockedBuffer)
			cmd.Stdout, cmd.Stderr = output, output
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { defer close(ended); _ = cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
			for end := time.Now().Add(time.Minute); ; {
				if socket, _ := filepath.Glob(filepath.Join(temp, "*", "*.sock")); len(socket) > 0 { // the pattern is right
					break
				}
				select {
				case <-ended:
					t.Fatalf("it ended: %s", output)
				case <-time.After(10 * time.Millisecond):
				}
				if time.Now().After(end) {
					t.Fatalf("no gateway: %s", output)
				}
			}
			for _, signal := range signals {
				_ = cmd.Process.Signal(signal) // the second may find it gone
			}
			<-ended
			if left, err := os.ReadDir(temp); err != nil || name != "killed" && len(left) > 0 {
				t.Errorf("%s: files are left: %v, %v", name, left, err)
			}
			if left, err := filepath.Glob(fmt.Sprintf("/run/netns/weirlab-*.%d.*", cmd.Process.Pid)); err != nil || name != "killed" && len(left) > 0 {
				t.Errorf("%s: namespaces are left: %v, %v", name, left, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if _, err := bench.Turn(ctx, bench.TurnConfig{
				Clients: 1, Duration: time.Minute, Size: 100, Bandwidth: 1e6, Platform: "local", Path: bench.TurnPathCat,
				Generator: bench.GeneratorBuiltin, Offload: "none", Network: bench.NetworkAuto, Transport: bench.TransportUDP, Direction: bench.DirectionUp,
				Run: bench.Run{Binary: os.Args[0], Progress: func(_ float64, what string) {
					if strings.HasPrefix(what, "direct: ") { // everything is up
						cancel()
					}
				}},
			}); !errors.Is(err, context.Canceled) {
				t.Errorf("the next start: %v", err)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("files are left: %v, %v", left, err)
			}
			if left, err := filepath.Glob(fmt.Sprintf("/run/netns/weirlab-*.%d.*", cmd.Process.Pid)); err != nil || len(left) > 0 {
				t.Errorf("namespaces are left: %v, %v", left, err)
			}
		})
	}
}
