package turn

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// stunnerProgram is a program of STUNner's, of the module tools/stunner, which .ci/deps builds; without it the test is skipped.
func stunnerProgram(t *testing.T, name string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	clitest.Must(t, err)
	path := filepath.Join(cache, "weir", "stunner", name)
	netlabtest.Tools(t, path)
	return path
}

// lines are those that a program prints.
type lines struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan string
	cmd   *exec.Cmd
}

func startLines(t *testing.T, program string, args ...string) *lines {
	t.Helper()
	l := &lines{t: t, cmd: exec.Command(program, args...), lines: make(chan string, 64)}
	in, err := l.cmd.StdinPipe()
	clitest.Must(t, err)
	l.in = in
	out, err := l.cmd.StdoutPipe()
	clitest.Must(t, err)
	clitest.Must(t, clitest.StartChild(l.cmd))
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		_ = l.cmd.Wait()
	})
	go func() {
		defer close(l.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			l.lines <- scanner.Text()
		}
	}()
	return l
}

// until returns the next line that begins so.
func (l *lines) until(prefix string) string {
	l.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case line, ok := <-l.lines:
			if !ok {
				l.t.Fatalf("it ended without a line %s…", prefix)
			}
			if strings.HasPrefix(line, prefix) {
				return line
			}
		case <-timeout:
			l.t.Fatalf("no line %s…", prefix)
		}
	}
}

// STUNner's own client reads and watches Weir's service: one configuration, a list, changes, the address of the node, a deletion.
func TestStunnersClientOfOurService(t *testing.T) {
	program, service := stunnerProgram(t, "stunner"), newConfigService(t)
	at, health := netip.MustParseAddrPort("192.0.2.9:3478"), netip.MustParseAddrPort("192.0.2.9:8086")
	service.set(strings.Replace(stunnerConfig(at, health, "10.0.0.1"), `"192.0.2.9","port"`, `"__node_address_placeholder","port"`, 1))
	type config struct {
		Admin     struct{ Name string }
		Listeners []struct {
			Name, Address string
			Port          int
		}
		Clusters []struct{ Endpoints []string }
	}
	read := func(line string) (c config) {
		t.Helper()
		if err := json.Unmarshal([]byte(line), &c); err != nil || c.Admin.Name != "media/udp" || len(c.Listeners) != 1 || len(c.Clusters) != 1 || c.Listeners[0].Port != 3478 {
			t.Fatalf("%v: %s", err, line)
		}
		return c
	}
	if c := read(startLines(t, program, "get", service.address, "media/udp", "n1").until("{")); c.Listeners[0].Address != "192.0.2.1" {
		t.Errorf("for a node: %+v", c)
	}
	list := startLines(t, program, "list", service.address)
	if c := read(list.until("{")); c.Listeners[0].Address != "__node_address_placeholder" {
		t.Errorf("in the list: %+v", c)
	}
	if line := list.until("license"); !strings.Contains(line, "tier=free") {
		t.Error(line)
	}
	if line := startLines(t, program, "get", service.address, "media/other", "").until("error"); !strings.Contains(line, "404") || !strings.Contains(line, "there is no configuration media/other") {
		t.Error(line)
	}
	watch := startLines(t, program, "watch", service.address, "media/udp", "n1")
	if c := read(watch.until("{")); c.Listeners[0].Address != "192.0.2.1" {
		t.Errorf("watched: %+v", c)
	}
	service.set(stunnerConfig(at, health, "10.0.0.2"))
	if c := read(watch.until("{")); c.Clusters[0].Endpoints[0] != "10.0.0.2" {
		t.Errorf("changed: %+v", c)
	}
	service.Delete(discovery.ID{Namespace: "media", Name: "udp"})
	watch.until("deleted")
	service.end()
	service.begin()
	service.set(stunnerConfig(at, health, "10.0.0.3"))
	if c := read(watch.until("{")); c.Clusters[0].Endpoints[0] != "10.0.0.3" {
		t.Errorf("over its next connection: %+v", c)
	}
}

// Weir's gateway follows the service of STUNner's operator: it is ready with the first configuration, follows changes, outlives a
// deletion, and pings often enough to notice that the service has ended.
func TestOurGatewayOfStunnersService(t *testing.T) {
	clitest.TakesSeconds(t)
	program, address, at, health := stunnerProgram(t, "stunner"), clitest.FreeTCP(t).String(), netlabtest.UDPAddress(t), clitest.FreeTCP(t)
	service := startLines(t, program, "serve", address, "127.0.0.1")
	service.until("serving")
	g := startStunnerd(t, at.String(), "-w", "-c", address, "-i", "media/udp", "--health-address", "")
	g.until("it is connected", func(s *v1.TurnStatus) bool { return s.Config.Discovery.Connected })
	set := func(peers string) {
		t.Helper()
		fmt.Fprintln(service.in, "media/udp", stunnerConfig(at, health, peers))
		service.until("set")
	}
	set("127.0.0.1")
	g.until("it is ready", func(s *v1.TurnStatus) bool { return s.Ready })
	fs := newTurnFlows(t, at.String(), 3, flowInterval)
	fs.goOn()
	set("127.0.0.0/8")
	g.until("it follows", func(s *v1.TurnStatus) bool { return s.Config.Generation == 3 })
	fmt.Fprintln(service.in, "media/udp")
	service.until("deleted")
	g.until("the notice arrives", func(s *v1.TurnStatus) bool { return s.Config.Discovery.Received == 3 })
	fs.goOn()
	connected := g.now().Config.Discovery
	clitest.Must(t, service.cmd.Process.Signal(syscall.SIGSTOP)) // its connection stays open; nothing answers
	s := g.until("silence is noticed", func(s *v1.TurnStatus) bool { return s.Config.Discovery.Failures > connected.Failures })
	if s.Config.Error != "" || s.Totals.Allocations != 3 || connected.Connects != 1 {
		t.Errorf("%+v", s.Config)
	}
	fs.goOn()
}

// stunnerd, STUNner's own data plane, serves clients with the configuration of Weir's service, and follows it. It runs in a network
// namespace of its own, because its health port is fixed.
func TestRootStunnerdOfOurService(t *testing.T) {
	netlabtest.Root(t)
	program := stunnerProgram(t, "stunnerd")
	const own = "WEIR_TEST_OWN_NAMESPACE"
	if os.Getenv(own) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), own+"=1", clitest.RunAsWeir+"=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("in a namespace of its own: %v\n%s", err, out)
		}
		return
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	service, at, health := newConfigService(t), netip.MustParseAddrPort("127.0.0.1:3478"), netip.MustParseAddrPort("127.0.0.1:8087")
	cmd := exec.Command(program, "-w", "-c", service.address, "-i", "media/udp", "-l", "all:DEBUG")
	out := new(clitest.LockedBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	clitest.Must(t, clitest.StartChild(cmd))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	netlabtest.Eventually(t, "stunnerd watches", func() bool { return service.Stats().Watchers == 1 }, out.String)
	ready := func(at string) bool {
		_, err := fetch("http://" + at + "/ready")
		return err == nil
	}
	if ready("127.0.0.1:8086") {
		t.Error("stunnerd is ready without a configuration")
	}
	service.set(stunnerConfig(at, health, "127.0.0.1"))
	netlabtest.Eventually(t, "stunnerd is ready", func() bool { return ready(health.String()) }, out.String)
	fs := newTurnFlows(t, at.String(), 2, flowInterval)
	fs.goOn()
	service.set(stunnerConfig(at, health, "127.0.0.0/8"))
	clitest.WaitFor(t, out, `127\.0\.0\.0/8`)
	service.Delete(discovery.ID{Namespace: "media", Name: "udp"})
	clitest.WaitFor(t, out, "Ignoring delete")
	fs.goOn()
	fs.release()
	clitest.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v: %s", err, out.String())
		}
	case <-time.After(time.Minute):
		t.Errorf("stunnerd does not end: %s", out.String())
	}
}
