package nat

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func natRequest(t *testing.T, address, payload string) {
	t.Helper()
	conn, err := net.Dial("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := make([]byte, 1<<16)
	for range 10 {
		_, _ = conn.Write([]byte(payload))
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
		if n, err := conn.Read(b); err == nil && string(b[:n]) == payload {
			return
		}
	}
	t.Fatalf("no echo through %s", address)
}

// expect reads from r until text came.
func expect(t *testing.T, r *bufio.Reader, text string) {
	t.Helper()
	var seen strings.Builder
	for !strings.Contains(seen.String(), text) {
		b, err := r.ReadByte()
		if err != nil {
			t.Fatalf("waiting for %q: %v after\n%s", text, err, seen.String())
		}
		seen.WriteByte(b)
	}
}

// The console from a pipe: its end does not end the program, exit does, and --json leaves statistics behind.
func TestNATFromAPipe(t *testing.T) {
	listen, echo := netlabtest.UDPAddress(t).String(), clitest.UDPEcho(t)
	cmd := exec.Command(os.Args[0], "nat", listen, "--", echo, "--json", "--quiet")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out clitest.LockedBuffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	answers := bufio.NewReader(stderr)
	expect(t, answers, "type help")
	natRequest(t, listen, "through a pipe")
	for _, step := range [][2]string{
		{"", "1 NAT entries, reverse address update disabled."},
		{"", "Destination: " + echo + ", usage: 1"},
		{"clear", "1 - NAT entries dropped."},
		{"nonsense", "error: no command"},
		{"reverse on", "reverse address update enabled."},
	} {
		fmt.Fprintln(stdin, step[0])
		expect(t, answers, step[1])
	}
	natRequest(t, listen, "still")
	fmt.Fprintln(stdin, "exit")
	expect(t, answers, "exit.")
	go io.Copy(io.Discard, answers)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var stats v1.NATStats
	if err := clitest.ReadStrictly([]byte(out.String()), &stats); err != nil || stats.Counters.Received < 2 {
		t.Fatalf("statistics %q: %v", out.String(), err)
	}
}

// Without input it keeps running, and the admin API has console, flows, metrics and status.
func TestNATAdmin(t *testing.T) {
	listen, first, second := netlabtest.UDPAddress(t).String(), clitest.UDPEcho(t), clitest.UDPEcho(t)
	p := clitest.Start(t, "nat", "nat", listen, "--", first, second, "--loss", "0")
	natRequest(t, listen, "x")
	stream, err := p.Admin.Console(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	answers := bufio.NewReader(stream)
	third := clitest.UDPEcho(t)
	for _, step := range [][2]string{
		{"info", "2 destinations."},
		{"add " + third, "add destination " + third + "."},
		{"drain " + first, "is draining."},
		{"info", "3 destinations."},
		{"remove " + first, "remove destination"},
		{"rebalance", "destinations of 1."},
		{"reassign", "1 - NAT entries reassigned."},
		{"help", "exit"},
	} {
		fmt.Fprintln(stream, step[0])
		expect(t, answers, step[1])
	}
	var flows v1.FlowList
	if err := p.Admin.Get(t.Context(), "/flows", nil, &flows); err != nil || len(flows.Flows) != 1 {
		t.Fatalf("flows %+v, %v", flows, err)
	}
	fmt.Fprintln(stream, "exit")
	select {
	case <-p.Ended:
	case <-time.After(20 * time.Second):
		t.Fatal("exit over the admin API did not end it")
	}
	if p.Err != nil {
		t.Fatal(p.Err)
	}
}

// On a terminal: a prompt, completion, history; Ctrl-D ends nothing, Ctrl-C ends it and gives the terminal back.
func TestNATOnATerminal(t *testing.T) {
	master, terminal := clitest.PTY(t)
	before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	listen, echo := netlabtest.UDPAddress(t).String(), clitest.UDPEcho(t)
	cmd := exec.Command(os.Args[0], "nat", listen, echo)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	screen := bufio.NewReader(master)
	expect(t, screen, "type help")
	for _, step := range [][2]string{
		{"inf\t\r", "reverse address update disabled."}, // completion
		{"\x1b[A\r", "reverse address update disabled."},
		{"clexx\x7f\x7far\x02\x02\x02\x02\x02\x05\x15reverse on\r", "reverse address update enabled."}, // editing
		{"\x04", "type exit"},
		{"\x1b[A\r", "reverse address update enabled."}, // history outlives Ctrl-D
	} {
		if _, err := io.WriteString(master, step[0]); err != nil {
			t.Fatal(err)
		}
		expect(t, screen, step[1])
	}
	natRequest(t, listen, "x")
	go io.Copy(io.Discard, screen)
	if _, err := io.WriteString(master, "\x03"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Ctrl-C did not end it")
	}
	after, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if *after != *before {
		t.Fatal("the terminal was not given back")
	}
}

func TestNATBadArguments(t *testing.T) {
	for _, args := range []string{
		"", ":5784", ":5784 --", "-- 127.0.0.1:1", "127.0.0.1 127.0.0.1:1", ":0 127.0.0.1:1", ":99999 127.0.0.1:1",
		":5784 127.0.0.1:0", ":5784 127.0.0.1:1 --loss 101", ":5784 127.0.0.1:1 --loss 5 --loss-forward 5",
		":5784 127.0.0.1:1 --size-limit 0", ":5784 127.0.0.1:1 --size-limit 10:200", ":5784 127.0.0.1:1 --truncate x",
		":5784 127.0.0.1:1 --nat-timeout 10ms", ":5784 127.0.0.1:1 --destination-timeout -1s", ":5784 127.0.0.1:1 --affinity cid",
		":5784 127.0.0.1:1 --node-ids 1", ":5784 -- 127.0.0.1:1 --no-such-flag", ":5784 127.0.0.1:1 --max-entries -1",
		":5784 127.0.0.1:1 --log xml", ":5784 127.0.0.1:1 127.0.0.1:2 --cid-length 6 --node-ids 1",
		":5784 127.0.0.1:1 --cid-length 6 --node-ids 4294967297", ":5784 127.0.0.1:1 --cid-length -3", ":5784 127.0.0.1:1 --max-entries 0",
	} {
		root := clitest.Root()
		root.SetArgs(append([]string{"nat"}, strings.Fields(args)...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		err := root.ExecuteContext(t.Context())
		var exit *cli.ExitError
		if !errors.As(err, &exit) || exit.Code != cli.ExitUsage || exit.Err == nil || strings.Contains(exit.Error(), "\n") {
			t.Errorf("weir nat %s: %v; want one line and exit code %d", args, err, cli.ExitUsage)
		}
	}
}

// A script for cf-nat learns what to write.
func TestNATNamesTheFlagsForThoseOfCfNAT(t *testing.T) {
	for args, want := range map[string]string{
		"-tnat=30000": "--nat-timeout 30000ms", "-tlb=15000": "--destination-timeout 15000ms",
		"-tln=15000": "--destination-timeout 15000ms", // as its usage text has it in one place
		"--relod":    "unknown flag: --relod", "-z": "unknown shorthand flag",
	} {
		_, err := clitest.Execute(t, "nat", args, ":5784", "127.0.0.1:1")
		if clitest.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("weir nat %s: %v", args, err)
		}
	}
}
