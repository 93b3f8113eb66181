package tcp

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/scalebench"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// tcpProcess is a weir tcp that runs while the test does.
func tcpProcess(t *testing.T, start func(*exec.Cmd) error, args ...string) (cmd *exec.Cmd, out, notes *clitest.LockedBuffer) {
	t.Helper()
	cmd, out, notes = exec.Command(os.Args[0], append([]string{"tcp"}, args...)...), new(clitest.LockedBuffer), new(clitest.LockedBuffer)
	cmd.Env = append(os.Environ(), clitest.RunAsWeir+"=1")
	cmd.Stdout, cmd.Stderr = out, notes
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() // it may have ended
		cmd.Wait()
		if t.Failed() {
			t.Logf("%v:\n%s%s", args, out, notes)
		}
	})
	return cmd, out, notes
}

// A run that is void because this machine was too busy is made once more. What is void then, too, is void for that reason alone.
func TestTCPClientHoldsAgainstServer(t *testing.T) {
	clitest.TakesSeconds(t)
	server, out, notes := tcpProcess(t, (*exec.Cmd).Start, "server", "--listen", "127.0.0.1:0", "--workers", "2", "--id", "srv", "--zone", "a")
	port := clitest.WaitFor(t, notes, `listening on 127.0.0.1:(\d+)`)[1]
	var r tcpscale.Report
	runs := atMostTwice(t, func() string {
		client, got, _ := tcpProcess(t, (*exec.Cmd).Start, "client", "--to", "127.0.0.1:"+port, "--connections", "500", "--hold", "2s", "--heartbeat", "500ms", "--json", "--quiet")
		ended := client.Wait()
		r = tcpscale.Report{}
		if err := json.Unmarshal([]byte(got.String()), &r); err != nil || (ended != nil) != (r.Void != "") {
			t.Fatal(err, ended, r.Void)
		}
		return r.Void
	})
	if want := map[bool]string{false: "void: ", true: "ok: 500 of 500 connections"}[r.Void == ""]; !strings.HasPrefix(r.Conclusion, want) {
		t.Errorf("verdict %q, want %q", r.Conclusion, want)
	}
	if r.Connections.Established != 500 || r.Totals.Lost != 0 || r.Heartbeats.RTT.Count() == 0 || len(r.Peers) != 1 || r.Peers[0].ID != "srv" || r.Peers[0].Zone != "a" {
		t.Errorf("%+v %+v %+v", r.Connections, r.Totals, r.Peers)
	}
	server.Process.Signal(os.Interrupt)
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
	if want := fmt.Sprintf("opened %d, closed %[1]d, lost 0", 500*runs); !strings.Contains(out.String(), want) {
		t.Errorf("no %q; the server says:\n%s", want, out)
	}
}

// atMostTwice repeats a run that is void once, and says how many there were. No run is void but for a tester that was not scheduled.
func atMostTwice(t *testing.T, run func() (void string)) (runs int) {
	t.Helper()
	for runs = 1; ; runs++ {
		void := run()
		if void == "" {
			return runs
		}
		if !regexp.MustCompile(`^a worker was not scheduled for \d+\.\d s of \d+ s, at most \d+\.\d s at once$`).MatchString(void) {
			t.Errorf("void: %s", void)
		}
		if t.Logf("run %d is void: %s", runs, void); runs == 2 {
			return runs
		}
	}
}

// Each target gets the same, so a server that is named twice has two thirds.
func TestTCPClientExpectsASpread(t *testing.T) {
	clitest.TakesSeconds(t)
	var ports []string
	for _, id := range []string{"one", "two"} {
		_, _, notes := tcpProcess(t, (*exec.Cmd).Start, "server", "--listen", "127.0.0.1:0", "--workers", "1", "--id", id)
		ports = append(ports, clitest.WaitFor(t, notes, `listening on 127.0.0.1:(\d+)`)[1])
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--expect-servers", "2", "--expect-spread", "5%"}, 0, ""},
		{[]string{"--expect-servers", "3"}, cli.ExitFailure, "2 servers hold connections, 3 were expected"},
		{[]string{"--to", "127.0.0.1:" + ports[1], "--expect-spread", "5%"}, cli.ExitFailure, "33.3% less than an even share of 2 servers; 5% is allowed"},
		{[]string{"--expect-spread", "few"}, cli.ExitUsage, `--expect-spread "few": write a percentage such as 10%`},
		{[]string{"--expect-spread", "5%", "--plain"}, cli.ExitUsage, "names no servers"},
	} {
		args := append([]string{"client", "--to", "127.0.0.1:" + ports[0] + ",127.0.0.1:" + ports[1], "--connections", "300", "--workers", "1", "--hold", "1s", "--quiet"}, c.args...)
		for try := 1; ; try++ {
			client, _, output := tcpProcess(t, (*exec.Cmd).Start, args...)
			client.Wait()
			if try < 5 && strings.Contains(output.String(), "this machine was too busy") { // void: it says nothing about the spread
				continue
			}
			if client.ProcessState.ExitCode() != c.code || !strings.Contains(output.String(), c.want) {
				t.Errorf("%v: exit code %d, want %d and %q\n%s", c.args, client.ProcessState.ExitCode(), c.code, c.want, output)
			}
			break
		}
	}
}

func TestTCPBenchInOneCommand(t *testing.T) {
	clitest.TakesSeconds(t)
	report := t.TempDir() + "/r.html"
	var r scalebench.Result
	atMostTwice(t, func() string {
		cmd, out, _ := tcpProcess(t, (*exec.Cmd).Start, "bench", "--connections", "1500", "--workers", "2", "--server-workers", "2", "--hold", "3s", "--heartbeat", "1s", "--json", "--report", report)
		ended := cmd.Wait()
		r = scalebench.Result{}
		if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
			t.Fatal(err)
		}
		if (ended == nil) != r.OK || r.OK != (r.Void == "") || r.Void != "" && !strings.HasPrefix(r.Verdict, "void: "+r.Void) {
			t.Errorf("%v, %q: %s", ended, r.Void, r.Verdict)
		}
		return r.Void
	})
	if r.Held != 1500 || r.Lost != 0 || r.EstablishSeconds <= 0 || r.Client.Reconciled == nil || !r.Client.Reconciled.Agree {
		t.Errorf("%s: %+v", r.Verdict, r.Client.Connections)
	}
	if page := clitest.ReadPage(t, report); !strings.Contains(page, "1500 connections held") || !strings.Contains(page, "<svg") ||
		!strings.Contains(page, "weir tcp bench --connections 1500 --workers 2") || !strings.Contains(page, "load average: ") || !strings.Contains(page, "p99.99") {
		t.Error("the report does not say it")
	}
}

// Whose workers are stopped says so for people, for programs, and in the exit code.
func TestTCPClientThatWasStoppedIsVoid(t *testing.T) {
	clitest.TakesSeconds(t)
	_, _, notes := tcpProcess(t, (*exec.Cmd).Start, "server", "--listen", "127.0.0.1:0", "--workers", "1", "--quiet")
	port := clitest.WaitFor(t, notes, `listening on 127.0.0.1:(\d+)`)[1]
	cmd, out, progress := tcpProcess(t, (*exec.Cmd).Start, "client", "--to", "127.0.0.1:"+port, "--connections", "50", "--workers", "1", "--heartbeat", "500ms", "--misses", "50")
	clitest.WaitFor(t, progress, `(?m)^ +\d+ +50 `)
	var text []byte
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
	for _, task := range tasks {
		more, _ := os.ReadFile(task) // a thread may have ended
		text = append(text, more...)
	}
	var worker int
	if _, err := fmt.Sscan(string(text), &worker); err != nil {
		t.Fatalf("no worker: %v %q", err, text)
	}
	const stop = 3 * time.Second
	syscall.Kill(worker, syscall.SIGSTOP)
	time.Sleep(stop) // what is tested is that this time is seen
	syscall.Kill(worker, syscall.SIGCONT)
	clitest.WaitFor(t, progress, `VOID: a worker was not scheduled for`)
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if cmd.ProcessState.ExitCode() != cli.ExitFailure || !regexp.MustCompile(`VOID +a worker was not scheduled for [2-9]`).MatchString(out.String()) ||
		!strings.Contains(progress.String(), "the result is void: ") || !strings.Contains(out.String(), "never sent") {
		t.Errorf("exit code %d\n%s\n%s", cmd.ProcessState.ExitCode(), out, progress)
	}
}

func TestTCPClientWithoutServerSaysSo(t *testing.T) {
	clitest.TakesSeconds(t)
	cmd, out, notes := tcpProcess(t, (*exec.Cmd).Start, "client", "--to", "127.0.0.1:1", "--connections", "20", "--hold", "1s", "--plateau", "1s", "--quiet")
	cmd.Wait()
	if cmd.ProcessState.ExitCode() != cli.ExitFailure || !strings.Contains(out.String(), "no program listens there") || !strings.Contains(notes.String(), "0 of 20 connections") {
		t.Errorf("exit code %d\n%s%s", cmd.ProcessState.ExitCode(), out, notes)
	}
}

func TestTCPDoctorSaysWhatDoesNotFit(t *testing.T) {
	for args, want := range map[string]int{"--connections 100": 0, "--connections 2000000000": cli.ExitFailure, "--connections 0": cli.ExitUsage, "--end middle": cli.ExitUsage} {
		cmd, out, _ := tcpProcess(t, (*exec.Cmd).Start, append([]string{"doctor"}, strings.Fields(args)...)...)
		cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != want || want == cli.ExitFailure && !strings.Contains(out.String(), "sysctl -w fs.file-max=") {
			t.Errorf("%s: exit code %d, want %d\n%s", args, got, want, out)
		}
	}
}

// serverAcross makes two network namespaces with a link between them, and starts a server in one, at 10.9.0.2:10000.
func serverAcross(t *testing.T, name string) (client, server *netlab.Host) {
	t.Helper()
	lab := netlabtest.Up(t, netlab.Topology{
		Name: name, Namespaces: []netlab.Namespace{{Name: "c"}, {Name: "s"}},
		Links: []netlab.Link{netlab.Cable("c eth0 10.9.0.1/24", "s eth0 10.9.0.2/24")},
	})
	client, server = lab.Namespace("c"), lab.Namespace("s")
	_, _, notes := tcpProcess(t, server.Start, "server", "--listen", "10.9.0.2:10000", "--workers", "1", "--quiet")
	clitest.WaitFor(t, notes, "listening on")
	return client, server
}

// A path that drops without a word: found by the heartbeats within misses × period, and the connections come back once
// the path does.
func TestRootTCPSilentPathIsFound(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "nft")
	client, _ := serverAcross(t, "tcpsilent")
	cmd, out, progress := tcpProcess(t, client.Start, "client", "--to", "10.9.0.2:10000", "--connections", "300", "--heartbeat", "500ms", "--timeout", "1s", "--backoff-max", "500ms", "--json")
	clitest.WaitFor(t, progress, `(?m)^ +\d+ +300 `)
	nft := func(args ...string) {
		if text, err := client.Exec(t.Context(), "nft", args...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, text)
		}
	}
	nft("add", "table", "inet", "t")
	nft("add", "chain", "inet", "t", "c", "{ type filter hook input priority 0; }")
	nft("add", "rule", "inet", "t", "c", "tcp", "sport", "10000", "drop")
	clitest.WaitFor(t, progress, `silent 300\b`)
	nft("delete", "table", "inet", "t")
	clitest.WaitFor(t, progress, `(?m)^ +\d+ +300 +\d+ +\d+ +\d+ +300 `)
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	var r tcpscale.Report
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	if cmd.ProcessState.ExitCode() != cli.ExitFailure || r.Totals.Lost != 300 || r.Totals.Reconnected != 300 || r.Detected.Min() < 1400*time.Millisecond {
		t.Errorf("exit code %d, %+v, found after %v", cmd.ProcessState.ExitCode(), r.Totals, r.Detected.Min())
	}
}

// A path that drops only what clients send. The server evicts them, and its reset is all that some of them receive: it is the path's
// fault all the same, not that of a server's end.
func TestRootTCPOneWayPathIsFound(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "nft")
	client, server := serverAcross(t, "tcponeway")
	cmd, out, progress := tcpProcess(t, client.Start, "client", "--to", "10.9.0.2:10000", "--connections", "300", "--heartbeat", "500ms", "--misses", "4", "--timeout", "1s", "--json")
	clitest.WaitFor(t, progress, `(?m)^ +\d+ +300 `)
	for _, args := range []string{
		"add table inet t", "add chain inet t c { type filter hook input priority 0; }", "add rule inet t c tcp dport 10000 drop",
	} {
		if text, err := server.Exec(t.Context(), "nft", strings.Fields(args)...); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, text)
		}
	}
	clitest.WaitFor(t, progress, `(?m)^ +\d+ +0 +\d+ +\d+ +\d+ +300 `) // all are lost
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	var r tcpscale.Report
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	// Evicted: the server's farewell came through. Silent: the server had no processor, and sent nothing after its last answer. Starved: the tester was,
	// by other load.
	if f := r.Failures; f["one_way"]+f["evicted"]+f["silent"]+f["starved"] != 300 || f["one_way"] == 0 || f["reset"] > 0 {
		t.Errorf("%v", f)
	}
}

func TestTCPAndSnatRefuseBadInput(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"tcp bench list", `weir tcp bench has no arguments, "list" was given`},
		{"snat rules x", "has no arguments"},
		{"tcp bench --connections 10 --serve-stats foo", "write HOST:PORT"},
		{"tcp bench --connections 10 --stats foo", "write HOST:PORT"},
		{"tcp doctor --targets 0", "--targets 0: at least 1"},
		{"snat plan azure-nat --ports 5", "--ports: azure-nat has no such setting"},
		{"snat plan masquerade --ips 2", "--ips: masquerade has no such setting"},
		{"snat plan azure-lb --ports 7", "write 8"},
	} {
		_, err := clitest.Execute(t, strings.Fields(c.args)...)
		if clitest.ExitCode(err) != cli.ExitUsage || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: exit code %d, %v; want %q", c.args, clitest.ExitCode(err), err, c.want)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"tcp client --to 127.0.0.1:9 --connections 1 --sources 203.0.113.77", "--sources 203.0.113.77: no address of this machine"},
		{"tcp bench --connections 20000000 --workers 1", "open files of a process"}, // more than any hard limit
	} {
		_, err := clitest.Execute(t, strings.Fields(c.args)...)
		if clitest.ExitCode(err) != cli.ExitFailure || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: exit code %d, %v; want %q", c.args, clitest.ExitCode(err), err, c.want)
		}
	}
}
