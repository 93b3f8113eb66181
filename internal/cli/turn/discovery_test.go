package turn

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// configService is a config discovery service of a test, which can end and come back at its address.
type configService struct {
	*discovery.Server
	t       *testing.T
	address string
	end     func()
}

func newConfigService(t *testing.T) *configService {
	s := &configService{t: t, address: clitest.FreeTCP(t).String()}
	s.begin()
	t.Cleanup(func() { s.end() })
	return s
}

func (s *configService) begin() {
	s.t.Helper()
	s.Server = discovery.NewServer(discovery.ServerOptions{
		Deleted: func(id discovery.ID) []byte { return stunnerd.Deleted(id.String()) },
		Patch:   func(config []byte, node string) []byte { return stunnerd.PatchNode(config, "192.0.2.1") },
	})
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listener) }()
	s.end = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		s.end = func() {}
	}
}

// set gives the gateway media/udp a configuration.
func (s *configService) set(config string) {
	s.t.Helper()
	if err := s.Set(discovery.ID{Namespace: "media", Name: "udp"}, []byte(config)); err != nil {
		s.t.Fatal(err)
	}
}

// stunnerConfig is what an operator of STUNner's makes, with keys that Weir does not know.
func stunnerConfig(at, health netip.AddrPort, peers string) string {
	return fmt.Sprintf(`{"version":"v1","admin":{"name":"media/udp","healthcheck_endpoint":"http://%v","future":{"x":1}},`+
		`"auth":{"type":"static","realm":%q,"credentials":{"username":%q,"password":%q}},`+
		`"listeners":[{"name":"media/udp/udp","protocol":"TURN-UDP","address":%q,"port":%d,"routes":["media/peers"],"new":true}],`+
		`"clusters":[{"name":"media/peers","type":"STATIC","protocol":"udp","endpoints":[%q]}]}`, health, flowRealm, flowUser, flowPassword, at.Addr(), at.Port(), peers)
}

// startStunnerd runs stunnerd's command line.
func startStunnerd(t *testing.T, server string, args ...string) *turnGateway {
	t.Helper()
	g := &turnGateway{server: server}
	g.Process = clitest.Start(t, "gateway", append([]string{"turn", "stunnerd", "--metrics="}, args...)...)
	t.Cleanup(func() {
		select {
		case <-g.Ended:
		default:
			g.Cmd.Process.Signal(syscall.SIGTERM)
			g.Signalled = true // the harness's interrupt is the second signal
		}
	})
	return g
}

// The data plane of an operator: alive without a configuration, ready with one, which it follows, and keeps while the operator is
// away: also when its serving process is killed, and with --state when all of them end. Allocations go on through all of it.
func TestStunnerdFollowsItsService(t *testing.T) {
	clitest.TakesSeconds(t)
	service, at, health, early := newConfigService(t), netlabtest.UDPAddress(t), clitest.FreeTCP(t), clitest.FreeTCP(t)
	state := t.TempDir() + "/state"
	args := []string{"-w", "-c", service.address, "-i", "media/udp", "--udp-thread-num=16", "--health-address", early.String(), "--state", state}
	g := startStunnerd(t, at.String(), args...)
	g.until("it is connected", func(s *v1.TurnStatus) bool { return s.Config.Discovery.Connected })
	if s := g.now(); s.Ready || len(s.Listeners) != 0 || s.Config.Discovery.Received != 0 || s.Config.Discovery.ID != "media/udp" {
		t.Errorf("without a configuration: %+v", s)
	}
	probe := func(at netip.AddrPort, path, want string) {
		t.Helper()
		body, err := fetch(fmt.Sprintf("http://%v%s", at, path))
		if (err == nil) != (want == "200") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v%s: %v %s, want %s", at, path, err, body, want)
		}
	}
	probe(early, "/live", "200")
	probe(early, "/ready", "503")

	service.set(stunnerConfig(at, health, "127.0.0.1"))
	g.until("it is ready", func(s *v1.TurnStatus) bool { return s.Ready })
	probe(health, "/live", "200")
	probe(health, "/ready", "200")
	fs := newTurnFlows(t, at.String(), 5, flowInterval)
	fs.goOn()
	if s := g.now(); len(s.Config.Notes) != 2 || !strings.Contains(s.Config.Notes[0], "unknown key") || !strings.HasPrefix(s.Config.Notes[0], s.Config.File+":1:") {
		t.Errorf("notes %q", s.Config.Notes)
	}

	service.set(stunnerConfig(at, health, "no endpoint!"))
	s := g.until("a bad configuration is refused", func(s *v1.TurnStatus) bool { return s.Config.Error != "" })
	if want := "clusters[0].endpoints[0]"; !strings.HasPrefix(s.Config.Error, "http://"+service.address+"/api/v1/configs/media/udp:1:") || !strings.Contains(s.Config.Error, want) {
		t.Errorf("error %q", s.Config.Error)
	}
	fs.goOn()
	service.set(stunnerConfig(at, health, "127.0.0.0/8"))
	s = g.until("a good one after it", func(s *v1.TurnStatus) bool { return s.Config.Error == "" })
	generation := s.Config.Generation
	service.Delete(discovery.ID{Namespace: "media", Name: "udp"})
	g.until("the notice arrives", func(s *v1.TurnStatus) bool { return s.Config.Discovery.Received >= 4 })
	fs.goOn()

	service.end()
	g.until("the service is away", func(s *v1.TurnStatus) bool { return !s.Config.Discovery.Connected && s.Config.Discovery.Error != "" })
	before := g.now()
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	g.becomes(before)
	s = g.until("ready again", func(s *v1.TurnStatus) bool { return s.Ready })
	fs.goOn()
	if !s.Config.Discovery.Kept || s.Totals.Allocations != 5 || s.Config.Generation > generation {
		t.Errorf("after a kill, without the service: %+v, %+v", s.Config, s.Totals)
	}
	probe(health, "/ready", "200")

	g.Cmd.Process.Signal(syscall.SIGTERM) // the second one ends the drain
	g.drains()
	g.Cmd.Process.Signal(syscall.SIGTERM)
	<-g.Ended
	noSecret(t, g.Out.String())
	g = startStunnerd(t, at.String(), args...)
	s = g.until("ready with the configuration of the process before", func(s *v1.TurnStatus) bool { return s.Ready })
	fs.goOn()
	if !s.Config.Discovery.Kept || s.Totals.Allocations != 5 {
		t.Errorf("after a new start, without the service: %+v, %+v", s.Config.Discovery, s.Totals)
	}

	service.begin()
	service.set(stunnerConfig(at, health, "127.0.0.0/8"))
	s = g.until("the service is back", func(s *v1.TurnStatus) bool { return s.Config.Discovery.Received > 0 && !s.Config.Discovery.Kept })
	if s.Config.Generation != 1 {
		t.Errorf("the same configuration was applied again: generation %d", s.Config.Generation)
	}
	metrics := clitest.HTTPGet(t, g.Socket, "/metrics")
	for _, line := range []string{"weir_config_discovery_connected 1", "weir_config_discovery_kept 0", "weir_config_discovery_received_total 1"} {
		if !strings.Contains(metrics, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
	noSecret(t, metrics+clitest.HTTPGet(t, g.Socket, "/status"))

	g.Cmd.Process.Signal(syscall.SIGTERM)
	g.drains()
	probe(health, "/ready", "503")
	probe(health, "/live", "200")
	netlabtest.Eventually(t, "the watch ends with the drain", func() bool { return service.Stats().Watchers == 0 }, func() string { return fmt.Sprint(service.Stats()) })
	fs.goOn()
	fs.release()
	<-g.Ended
	if g.Err != nil {
		t.Errorf("the drained gateway ended with %v", g.Err)
	}
	noSecret(t, g.Out.String())
}

func noSecret(t *testing.T, text string) {
	t.Helper()
	if i := strings.Index(text, flowPassword); i >= 0 {
		t.Errorf("a password is in the output: …%s", text[max(0, i-200):min(len(text), i+100)])
	}
}

// Without -w the configuration is read once; --force-ready-status keeps the gateway ready while it drains.
func TestStunnerdReadsOnce(t *testing.T) {
	service, at, health := newConfigService(t), netlabtest.UDPAddress(t), clitest.FreeTCP(t)
	service.set(stunnerConfig(at, health, "127.0.0.1"))
	g := startStunnerd(t, at.String(), "-c", "ws://"+service.address, "-i", "media/udp", "--force-ready-status", "--no-supervisor", "-l", "all:DEBUG,nonsense")
	fs := newTurnFlows(t, at.String(), 1, flowInterval)
	fs.goOn()
	service.end()
	g.Cmd.Process.Signal(syscall.SIGTERM)
	g.drains()
	if body, err := fetch(fmt.Sprintf("http://%v/ready", health)); err != nil {
		t.Errorf("not ready while it drains: %v %s", err, body)
	}
	fs.release()
	<-g.Ended
	if g.Err != nil || !strings.Contains(g.Out.String(), "-l: admin.loglevel: ") {
		t.Errorf("%v: %s", g.Err, g.Out.String())
	}
	noSecret(t, g.Out.String())
	_, errOut, err := clitest.Both(t, "turn", "stunnerd", "-c", service.address, "-i", "media/udp", "-d")
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("without its service: %v %s", err, errOut)
	}
}

// Where stunnerd's options and environment say the configuration is.
func TestStunnerdSource(t *testing.T) {
	host, err := os.Hostname()
	clitest.Must(t, err)
	for _, c := range []struct {
		env, args string
		want      string // URL and id, or !error
	}{
		{"", "-w", "http://localhost:13478/api/v1/configs/default/stunnerd-" + host},
		{"STUNNER_CONFIG_ORIGIN=op:1 STUNNER_NAMESPACE=media STUNNER_NAME=gw", "-w", "http://op:1/api/v1/configs/media/gw"},
		{"STUNNER_CONFIG_ORIGIN=op:1 STUNNER_NAMESPACE=media STUNNER_NAME=gw", "-c https://x -i a/b", "https://x/api/v1/configs/a/b"},
		{"", "-c file:///x.yaml", "/x.yaml"},
		{"STUNNER_CONFIG_ORIGIN=op:1", "turn://u:p@127.0.0.1", ""},
		{"KUBECONFIG=/none", "-c k8s -i a/b", "!-c k8s: which API server? Give --kubeconfig"},
		{"", "-c op:1 -i a/b --context x", "!are about -c k8s"},
		{"", "-i nonsense", "!names no configuration"},
		{"", "-c ftp://x", "!the scheme is ftp"},
		{"", "a b", "!2 TURN URIs"},
	} {
		for _, pair := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(pair, "=")
			t.Setenv(name, value)
		}
		cmd := newStunnerdCommand()
		if err := cmd.ParseFlags(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		flags := &stunnerdFlags{}
		flags.config.Path, _ = cmd.Flags().GetString("config")
		flags.id, _ = cmd.Flags().GetString("id")
		flags.cluster.Context, _ = cmd.Flags().GetString("context")
		flags.port = discovery.DefaultPort
		source, err := flags.source(cmd.Flags().Args())
		if reason, bad := strings.CutPrefix(c.want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), reason) {
				t.Errorf("%q: %v, want %s", c.args, err, reason)
			}
		} else if err != nil || source.name() != c.want {
			t.Errorf("%q: %v, want %s", c.args, err, c.want)
		}
		for _, pair := range strings.Fields(c.env) {
			name, _, _ := strings.Cut(pair, "=")
			os.Unsetenv(name)
		}
	}
}
