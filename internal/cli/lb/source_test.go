package lb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/control/discovery"
)

// configServer is a config discovery service at a Unix socket that can go away.
type configServer struct {
	t      *testing.T
	socket string
	server *discovery.Server
	http   *http.Server
}

func newConfigServer(t *testing.T) *configServer {
	t.Helper()
	c := &configServer{t: t, socket: filepath.Join(shortTemp(t), "cds")}
	t.Cleanup(c.stop)
	return c
}

func shortTemp(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "weir") // t.TempDir may exceed what a socket's path can hold
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

func (c *configServer) start() {
	c.t.Helper()
	listener, err := net.Listen("unix", c.socket)
	if err != nil {
		c.t.Fatal(err)
	}
	c.server = discovery.NewServer(discovery.ServerOptions{})
	c.http = &http.Server{Handler: c.server.Handler(), ReadHeaderTimeout: time.Minute}
	go c.http.Serve(listener)
}

func (c *configServer) stop() {
	if c.http != nil {
		c.http.Close()
	}
}

// set gives a configuration to all nodes and waits until node has applied or refused it.
func (c *configServer) set(text, node string) error {
	c.t.Helper()
	version, err := c.server.Set([]byte(text))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	return c.server.Wait(ctx, version, node)
}

// The configuration comes from a server: the balancer waits for it, follows it, says what it refuses, and after a kill -9 serves the last
// valid one while the server is away.
func TestLBRunFromSource(t *testing.T) {
	one, two := namedEcho(t, "one"), namedEcho(t, "two")
	address := clitest.FreeAddresses(t, 1)[0]
	_, vip, _ := net.SplitHostPort(address)
	spec := func(backend int) string {
		return fmt.Sprintf("services:\n- name: echo\n  vips: [{address: 127.0.0.1, protocol: udp, port: %s}]\n  backends: [{name: a, address: 127.0.0.1, port: %d}]\n", vip, backend)
	}
	server := newConfigServer(t)
	state := filepath.Join(t.TempDir(), "state.yaml")
	start := func() *clitest.Process {
		return clitest.Start(t, "lb", "lb", "run", "--source", "unix:"+server.socket, "--node", "a", "--state", state, "--log", "json")
	}
	p := start()
	if status, err := p.Admin.LBStatus(t.Context()); err != nil || status.Generation != 0 || status.Source == nil || status.Source.Connected {
		t.Fatalf("before the server is there: %+v, %v", status, err)
	}
	if _, code := clitest.Weir(t, "lb", "show", "--admin=unix:"+p.Socket); code != 0 {
		t.Errorf("show without a configuration: exit code %d", code)
	}
	clitest.HTTPGet(t, p.Socket, "/metrics")
	server.start()
	if err := server.set(spec(one), "a"); err != nil {
		t.Fatal(err)
	}
	if name := requestUDP(t, address); name != "one" {
		t.Errorf("%s answers", name)
	}
	// the stream of applied generations shows each one that comes
	lines := make(chan v1.Applied, 16)
	go p.Admin.Applied(t.Context(), func(a *v1.Applied) bool {
		lines <- *a
		return true
	})
	next := func(what string, is func(v1.Applied) bool) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			select {
			case a := <-lines:
				if is(a) {
					return
				}
			case <-deadline:
				t.Fatalf("no line says: %s", what)
			}
		}
	}
	next("generation 1", func(a v1.Applied) bool { return a.Generation == 1 && a.AppliedAt != nil && a.Error == "" })
	if err := server.set(spec(two), "a"); err != nil {
		t.Fatal(err)
	}
	next("generation 2", func(a v1.Applied) bool { return a.Generation == 2 })
	for text, want := range map[string]string{
		"services: [{name: x}]": "services[0].vips: the service \"x\" has no VIP",
		spec(two) + "  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {bits: 8}}]}\n  cluster: {token_file: /etc/shadow}\n":                  "names no files of this machine",
		spec(two) + "announce: {bgp: {as: 64512, router_id: 10.0.0.1, neighbours: [{address: 10.0.0.254, as: 64513, password_file: /etc/shadow}]}}\n": "announce.bgp.neighbours[0].password_file: a configuration from a server names no files of this machine; remove it, and write password_env",
	} {
		if err := server.set(text, "a"); !errors.Is(err, discovery.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	next("what was refused", func(a v1.Applied) bool { return a.Generation == 2 && a.Error != "" })
	if n := server.server.Nodes()[0]; n.Generation != 2 || n.Refused == "" {
		t.Errorf("the server knows %+v", n)
	}
	p.Cmd.Process.Signal(syscall.SIGKILL)
	<-p.Ended
	server.stop()
	p = start()
	if name := requestUDP(t, address); name != "two" {
		t.Errorf("after the restart without the server %s answers", name)
	}
	if status, err := p.Admin.LBStatus(t.Context()); err != nil || status.Generation != 1 || !status.Source.Restored {
		t.Errorf("%+v, %v", status, err)
	}
	server.start()
	if err := server.set(spec(two), "a"); err != nil { // what it has is reported, and not sent again
		t.Error(err)
	}
	if stats := server.server.Stats(); stats.Sent != 0 {
		t.Errorf("%+v", stats)
	}
	p.Cmd.Process.Signal(syscall.SIGHUP)
	if err := server.set(spec(one), "a"); err != nil {
		t.Error(err)
	}
	p.Stop()
	if !strings.Contains(p.Out.String(), "there is no file to read") {
		t.Error("SIGHUP is not explained")
	}
}

func TestLBRunRefusesSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--source operator:80":                                         "write https://HOST:PORT",
		"--source https://operator " + file:                            "two configurations",
		"--state x " + file:                                            "add --source URL",
		"--source http://operator:80 --source-token-file " + token:     "without encryption",
		"--source https://operator --node a/b":                         "a node has a name",
		"--source https://operator --source-ca-file " + token:          "no certificate in PEM",
		"--source https://operator --source-token-file /none/such":     "no such file",
		"--source https://operator --source-ca-file /none/such --node": "needs an argument",
	} {
		if out, code := clitest.Weir(t, append([]string{"lb", "run", "--admin", ""}, strings.Fields(args)...)...); code != cli.ExitUsage || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s; want %s", args, code, out, want)
		}
	}
}
