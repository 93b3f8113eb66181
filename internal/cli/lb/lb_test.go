package lb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// named echo: a UDP server that answers with its name and what it got.
func namedEcho(t *testing.T, name string) int {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			conn.WriteToUDPAddrPort(append([]byte(name+" "), b[:n]...), from)
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).Port
}

// requestUDP sends from a new port until something answers, and returns the name in it. The port stays taken until the test
// ends: the kernel would give it to a later client, whose flow would be an old one.
func requestUDP(t *testing.T, address string) string {
	t.Helper()
	conn, err := net.Dial("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	b := make([]byte, 2048)
	for range 30 {
		if _, err := conn.Write([]byte("hello")); err == nil {
			conn.SetReadDeadline(time.Now().Add(time.Second))
			if n, err := conn.Read(b); err == nil {
				name, _, _ := strings.Cut(string(b[:n]), " ")
				return name
			}
		}
	}
	t.Fatalf("%s does not answer", address)
	return ""
}

// The load balancer as an operator sees it: run, ask, drain, reload by rename and by signal, refuse a bad file, stop.
func TestLBRun(t *testing.T) {
	one, two := namedEcho(t, "one"), namedEcho(t, "two")
	address := clitest.FreeAddresses(t, 1)[0]
	_, vip, _ := net.SplitHostPort(address)
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".next", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".next", path); err != nil {
			t.Fatal(err)
		}
	}
	good := fmt.Sprintf(`hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
services:
- name: echo
  vips: [{address: 127.0.0.1, protocol: udp, port: %s}]
  timeouts: {udp: 30s}
  backends:
  - {name: one, address: 127.0.0.1, port: %d}
  - {name: two, address: 127.0.0.1, port: %d}
`, vip, one, two)
	write(good)
	p := clitest.Start(t, "lb", "lb", "run", "-c", path, "--datapath", "udp", "--log", "json")
	at := "--admin=unix:" + p.Socket

	seen := map[string]int{}
	for range 40 {
		seen[requestUDP(t, address)]++
	}
	if seen["one"] < 5 || seen["two"] < 5 {
		t.Errorf("40 clients went to %v", seen)
	}
	if out, code := clitest.Weir(t, "lb", "drain", "echo/one", at); code != 0 {
		t.Fatalf("drain: %d %s", code, out)
	}
	for range 10 {
		if name := requestUDP(t, address); name != "two" {
			t.Errorf("a new flow went to the drained %s", name)
		}
	}
	if out, code := clitest.Weir(t, "lb", "show", "echo", at); code != 0 || !strings.Contains(out, "draining (drain by operator)") {
		t.Errorf("show: %d\n%s", code, out)
	}
	if out, code := clitest.Weir(t, "lb", "flows", "--backend", "two", "--json", at); code != 0 || !strings.Contains(out, `"backend": "two"`) || strings.Contains(out, `"backend": "one"`) {
		t.Errorf("flows: %d\n%s", code, out)
	}
	if out, code := clitest.Weir(t, "lb", "drain", "echo/three", at); code != cli.ExitFailure || !strings.Contains(out, `no backend "three"`) {
		t.Errorf("drain of nobody: %d\n%s", code, out)
	}

	until := func(what string, code int, want ...string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			out, got := clitest.Weir(t, "lb", "status", "--json", at)
			ok := got == code
			for _, w := range want {
				ok = ok && strings.Contains(out, w)
			}
			if ok {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: exit code %d, want %d and %q:\n%s", what, got, code, want, out)
			}
		}
	}
	until("draining", 0, `"generation": 2`)
	write(strings.Replace(good, "udp: 30s", "udp: 30", 1))
	until("bad file", cli.ExitFailure, `"generation": 2`, `weir.yaml:6:19: services[0].timeouts.udp: `)
	if name := requestUDP(t, address); name != "two" {
		t.Errorf("%s answers while the file is bad", name)
	}
	write(strings.Replace(good, "name: one", "name: uno", 1))
	until("good file", 0, `"generation": 3`, `"uno"`)
	p.Cmd.Process.Signal(syscall.SIGHUP)
	until("SIGHUP", 0, `"generation": 4`)
	write("limits: {flows: 4321}\n" + good)
	until("limits", 0, `"generation": 5`, `"one"`)

	metrics := clitest.HTTPGet(t, p.Socket, "/metrics")
	for _, want := range []string{"weir_generation 5", "weir_apply_duration_seconds_count 5", `weir_apply_duration_seconds_bucket{le="25"} 5`, `weir_table_size{datapath="udp",table="flows"} 4321`, `weir_service_fail_open{service="echo"} 0`, `weir_backend_up{backend="two",service="echo"} 1`, `weir_packets_total{datapath="udp",reason="maglev",service="echo"}`, "weir_config_failures_total 1"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	// To undrain a service leaves its backends' own drains, and says so.
	for _, target := range []string{"echo/two", "echo"} {
		if out, code := clitest.Weir(t, "lb", "drain", target, at); code != 0 {
			t.Fatalf("drain %s: %d %s", target, code, out)
		}
	}
	if out, code := clitest.Weir(t, "lb", "undrain", "echo", at); code != 0 || !strings.Contains(out, "echo/two: still drain by operator; weir lb undrain echo/two") {
		t.Errorf("undrain of a service with a drained backend: %d\n%s", code, out)
	}
	for _, line := range watchedJSON(t, at) {
		if !json.Valid([]byte(line)) {
			t.Errorf("show --watch --json: a line is no JSON: %s", line)
		}
	}
	p.Stop()
	for _, line := range strings.Split(strings.TrimSpace(p.Out.String()), "\n") {
		if !json.Valid([]byte(line)) {
			t.Errorf("log line is no JSON: %s", line)
		}
	}
}

// A configuration without services is valid: the balancer starts, says so, and waits for the first service. A file that was
// emptied ends nothing.
func TestLBRunWithoutServices(t *testing.T) {
	one := namedEcho(t, "one")
	address := clitest.FreeAddresses(t, 1)[0]
	_, vip, _ := net.SplitHostPort(address)
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path+".next", []byte(text), 0o600), os.Rename(path+".next", path)); err != nil {
			t.Fatal(err)
		}
	}
	write("services: []\n")
	p := clitest.Start(t, "lb", "lb", "run", path, "--datapath", "udp", "--log", "json")
	at := "--admin=unix:" + p.Socket
	for args, want := range map[string]string{"lb status --json": `"generation": 1`, "lb show": "no services", "lb flows": ""} {
		if out, code := clitest.Weir(t, append(strings.Fields(args), at)...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s", args, code, out)
		}
	}
	write(fmt.Sprintf("services:\n- name: echo\n  vips: [{address: 127.0.0.1, protocol: udp, port: %s}]\n  backends: [{name: one, address: 127.0.0.1, port: %d}]\n", vip, one))
	status := func(what string, code int, want string) {
		t.Helper()
		netlabtest.Eventually(t, what, func() bool {
			out, got := clitest.Weir(t, "lb", "status", "--json", at)
			return got == code && strings.Contains(out, want)
		})
	}
	status("the first service is there", 0, `"generation": 2`)
	if name := requestUDP(t, address); name != "one" {
		t.Errorf("%s answered", name)
	}
	write("")
	status("the emptied file is refused", cli.ExitFailure, `"generation": 2`)
	if name := requestUDP(t, address); name != "one" {
		t.Errorf("%s answered while the file is empty", name)
	}
	write("services: []\n")
	status("the service is gone", 0, `"generation": 3`)
	p.Stop()
}

// watchedJSON is the first lines of weir lb show --watch --json.
func watchedJSON(t *testing.T, at string) []string {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	watch, out := clitest.Root(), new(clitest.LockedBuffer)
	watch.SetArgs([]string{"lb", "show", "--watch", "--every", "100ms", "--json", at})
	watch.SetOut(out)
	ended := make(chan error, 1)
	go func() { ended <- watch.ExecuteContext(ctx) }()
	for deadline := time.Now().Add(30 * time.Second); strings.Count(out.String(), "\n") < 3 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	interrupt()
	if err := <-ended; err != nil || strings.Count(out.String(), "\n") < 3 {
		t.Fatalf("show --watch --json: %v\n%s", err, out)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

func TestLBRunRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("maglev_size: 251\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good := filepath.Join(t.TempDir(), "good.yaml")
	text := fmt.Sprintf("services:\n- name: a\n  vips: [{address: 127.0.0.1, protocol: udp, port: %d}]\n  backends: [{name: b, address: 127.0.0.1, port: 9}]\n", taken.LocalAddr().(*net.UDPAddr).Port)
	if err := os.WriteFile(good, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"lb", "run", "-c", good, "--admin", ""}, cli.ExitFailure, "address already in use"}, // the file is not to blame
		{[]string{"lb", "run"}, cli.ExitUsage, "name it: weir lb run FILE"},
		{[]string{"lb", "run", "-c", bad, "--admin", ""}, cli.ExitUsage, "bad.yaml:1:1: services: the key is missing"},
		{[]string{"lb", "run", "-c", "/does/not/exist"}, cli.ExitUsage, "no such file"},
		{[]string{"lb", "run", "-c", bad, "--datapath", "dpdk"}, cli.ExitUsage, `no data path "dpdk"`},
		{[]string{"lb", "run", "-c", bad, "--log", "xml"}, cli.ExitUsage, "write text or json"},
		{[]string{"lb", "status", "--admin", "unix:/does/not/exist"}, cli.ExitFailure, "query unix:/does/not/exist"},
		{[]string{"lb", "show", "--admin", "unix:/does/not/exist"}, cli.ExitFailure, "no program answers there: start it, or name its --admin"},
		{[]string{"lb", "drain"}, cli.ExitUsage, "name one SERVICE"},
		{[]string{"lb", "stauts"}, cli.ExitUsage, "did you mean status"},
	} {
		if out, code := clitest.Weir(t, c.args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%q: %d %s; want %d %s", c.args, code, out, c.code, c.want)
		}
	}
}
