package turn

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pion/turn/v5"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// rewrite replaces a file as an editor or Kubernetes does.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// until waits for a status of the gateway.
func (g *turnGateway) until(what string, is func(s *v1.TurnStatus) bool) (s v1.TurnStatus) {
	g.T.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if s = g.now(); is(&s) {
			return s
		}
	}
	g.T.Fatalf("did not happen: %s; %+v", what, s.Config)
	return s
}

// stored waits until the supervisor, or systemd, has accepted every socket.
func (g *turnGateway) stored() v1.TurnStatus {
	g.T.Helper()
	return g.until("every socket is stored", func(s *v1.TurnStatus) bool { return s.Handover.Waiting == 0 })
}

func gatewayFile(address netip.AddrPort, peers string) string {
	return fmt.Sprintf(`realm: %s
auth: {users: [{name: %s, password: %s}]}
listeners: [{name: udp, address: %v, port: %d, routes: [peers]}]
clusters: [{name: peers, endpoints: [%s]}]
`, flowRealm, flowUser, flowPassword, address.Addr(), address.Port(), peers)
}

// The file is followed: a good change is applied under flows, a bad one refused with its place, SIGHUP reads again.
func TestTurnGatewayFollowsItsFile(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "gateway.yaml"), netlabtest.UDPAddress(t)
	rewrite(t, path, gatewayFile(at, "127.0.0.1"))
	g := startGateway(t, os.Args[0], path, at.String())
	fs := newTurnFlows(t, at.String(), 5, flowInterval)
	fs.goOn()
	if s := g.now(); s.Config == nil || s.Config.Generation != 1 || s.Config.File != path || len(s.Config.URIs) != 1 || !s.Ready {
		t.Fatalf("at the start: %+v", s.Config)
	}
	rewrite(t, path, gatewayFile(at, "127.0.0.1, 10.0.0.0/8"))
	g.until("a good change is taken over", func(s *v1.TurnStatus) bool { return s.Config.Generation == 2 && s.Config.Change != nil })
	rewrite(t, path, strings.Replace(gatewayFile(at, "127.0.0.1"), "routes: [peers]", "routes: [nowhere]", 1))
	s := g.until("a bad change is reported", func(s *v1.TurnStatus) bool { return s.Config.Error != "" })
	if want := path + `:3:`; !strings.HasPrefix(s.Config.Error, want) || !strings.Contains(s.Config.Error, `listeners[0].routes[0]: there is no cluster "nowhere"`) || s.Config.Generation != 2 {
		t.Errorf("error %q", s.Config.Error)
	}
	rewrite(t, path, gatewayFile(at, "127.0.0.1"))
	g.until("mended", func(s *v1.TurnStatus) bool { return s.Config.Generation == 3 && s.Config.Error == "" })
	if err := g.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s = g.until("SIGHUP reads again", func(s *v1.TurnStatus) bool { return s.Config.Generation == 4 })
	fs.goOn()
	if s.Totals.Allocations != 5 || s.Totals.Channels != 5 {
		t.Errorf("after four reloads: %+v", s.Totals)
	}
	rewrite(t, path, gatewayFile(at, "10.0.0.0/8"))
	s = g.until("the route is gone", func(s *v1.TurnStatus) bool { return s.Config.Generation == 5 })
	if s.Config.Change.Channels != 5 || s.Totals.Channels != 0 || s.Totals.Allocations != 5 {
		t.Errorf("change %+v, %+v", s.Config.Change, s.Totals)
	}
}

// A file of STUNner's is recognised; its HTTP servers stand where it says and move with it; secrets are nowhere to be seen.
func TestTurnGatewayOfStunner(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "stunnerd.yaml"), netlabtest.UDPAddress(t)
	health, metrics, other := clitest.FreeTCP(t), clitest.FreeTCP(t), clitest.FreeTCP(t)
	file := func(health netip.AddrPort) string {
		return fmt.Sprintf(`version: v1
admin: {healthcheck_endpoint: "http://%v", metrics_endpoint: "http://%v/custom", license_config: {key: k, hmac: h}, future: {a: 1}}
auth: {type: static, realm: %s, credentials: {username: %s, password: %s}}
listeners: [{name: udp, protocol: TURN-UDP, address: %v, port: %d, routes: [peers]}]
clusters: [{name: peers, endpoints: ["127.0.0.1:<1-65535>"]}]
`, health, metrics, flowRealm, flowUser, flowPassword, at.Addr(), at.Port())
	}
	rewrite(t, path, file(health))
	g := startGateway(t, os.Args[0], path, at.String())
	fs := newTurnFlows(t, at.String(), 2, flowInterval)
	fs.goOn()
	for url, want := range map[string]string{
		fmt.Sprintf("http://%v/live", health): "ok", fmt.Sprintf("http://%v/ready", health): "ready",
		fmt.Sprintf("http://%v/custom", metrics): "stunner_allocations_active 2",
	} {
		if body, err := fetch(url); err != nil || !strings.Contains(body, want) || strings.Contains(body, flowPassword) {
			t.Errorf("%s: %v, %.300s; want %s", url, err, body, want)
		} else if strings.HasSuffix(url, "/custom") {
			statustest.Check(t, "a gateway of a STUNner file", body)
			if timed := `weir_turn_listener_allocate_duration_seconds_count{listener="udp",protocol="udp"} 2`; !strings.Contains(body, timed) {
				t.Errorf("metrics lack %s", timed)
			}
		}
	}
	if body, err := fetch(fmt.Sprintf("http://%v/status", health)); err == nil || !strings.Contains(body, "this needs a credential") {
		t.Errorf("status without a token: %v, %s", err, body)
	}
	if s := g.now(); len(s.Config.Notes) != 2 || !strings.HasPrefix(s.Config.Notes[0], path+":2:") || !strings.Contains(s.Config.Notes[0], " admin.future: unknown key") ||
		!strings.HasPrefix(s.Config.Notes[1], path+":2:") || !strings.Contains(s.Config.Notes[1], "license") {
		t.Errorf("notes %q", s.Config.Notes)
	}
	taken, err := net.Listen("tcp", other.String())
	if err != nil {
		t.Fatal(err)
	}
	rewrite(t, path, file(other))
	s := g.until("a taken address is reported", func(s *v1.TurnStatus) bool { return s.Config.Error != "" })
	if !strings.Contains(s.Config.Error, "admin.healthcheck_endpoint: ") {
		t.Errorf("error %q", s.Config.Error)
	}
	if _, err := fetch(fmt.Sprintf("http://%v/ready", health)); err != nil {
		t.Errorf("the old health address is gone: %v", err)
	}
	taken.Close()
	if err := g.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	g.until("it moves", func(s *v1.TurnStatus) bool { return s.Config.Generation == 2 })
	if _, err := fetch(fmt.Sprintf("http://%v/ready", other)); err != nil {
		t.Errorf("the new health address: %v", err)
	}
	if _, err := fetch(fmt.Sprintf("http://%v/ready", health)); err == nil {
		t.Error("the old health address still answers")
	}
	fs.goOn()
}

func fetch(url string) (string, error) {
	client := http.Client{Timeout: 20 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", answer.Status)
	}
	return string(body), err
}

// A URI is enough for a gateway, and --peers names the peers it reaches.
func TestTurnGatewayOfAURI(t *testing.T) {
	at := netlabtest.UDPAddress(t)
	g := &turnGateway{server: at.String()}
	g.Process = clitest.Start(t, "gateway", "turn", "gateway", fmt.Sprintf("turn://%s:%s@%v?transport=udp", flowUser, flowPassword, at), "--peers", "127.0.0.1", "--no-supervisor")
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	peer, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	client, err := turn.NewClient(&turn.ClientConfig{TURNServerAddr: at.String(), Conn: socket, Username: flowUser, Password: flowPassword})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Listen(); err != nil {
		t.Fatal(err)
	}
	relay, err := client.Allocate()
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	if _, err := relay.WriteTo([]byte("hello"), peer.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 100)
	n, from, err := peer.ReadFrom(got)
	if err != nil || string(got[:n]) != "hello" || from.String() != relay.LocalAddr().String() {
		t.Errorf("the peer got %q from %v, %v", got[:n], from, err)
	}
	if _, err := relay.WriteTo([]byte("hello"), &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 9}); err == nil {
		t.Error("a peer beyond --peers is reached")
	}
	if s := g.now(); s.Totals.Allocations != 1 || s.Clusters[0].Name != "peers" {
		t.Errorf("%+v", s)
	}
}

func TestTurnGatewayUsage(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	rewrite(t, bad, "auth: {mode: none}\nlisteners: []\n")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{}, "no configuration; name a FILE, or write turn://"},
		{[]string{"-c", missing}, "no such file"},
		{[]string{"-c", bad, "turn://u:p@127.0.0.1"}, "exclude each other"},
		{[]string{"-c", bad, "--peers", "10.0.0.0/8"}, "belong to a TURN URI"},
		{[]string{"-c", bad}, bad + ":2:1: listeners: there is none"},
		{[]string{"-c", "k8s", "--kubeconfig", missing, "--id", "a/b"}, "-c k8s: which API server?"},
		{[]string{"-c", "gopher://x/y"}, "is not fetched by gopher"},
		{[]string{"-c", "ws://x/y"}, "the name of the configuration at http://x is missing; write --id"},
		{[]string{"-c", bad, "--id", "a/b"}, "--id, --kubeconfig and --context belong to the URL"},
		{[]string{"turn://u:secret@media.example"}, `turn://u:xxxxx@media.example: "media.example" is no address to listen at`},
		{[]string{"turn://u:p@127.0.0.1", "--peers", "10.1.1.1/8"}, "--peers[0]: 10.1.1.1/8 has bits beyond its length"},
		{[]string{"turn://u:p@127.0.0.1", "--tcp-peers", "10.1.1.1/8"}, "--tcp-peers[0]: 10.1.1.1/8 has bits beyond its length"},
		{[]string{"turn://u:p@127.0.0.1", "--peers", "10.0.0.0/8", "--tcp-peers", "10.0.0.0/8,10.1.1.1/8"}, "--tcp-peers[1]: 10.1.1.1/8 has bits"},
		{[]string{"turn://u:p@127.0.0.1", "turn://u:p@127.0.0.1"}, "2 TURN URIs"},
		{[]string{"turn://u:p@127.0.0.1", "--workers", "-1"}, "--workers -1 is not between"},
	} {
		root := clitest.Root()
		root.SetArgs(append([]string{"turn", "gateway", "--check"}, test.args...))
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v, want %s", test.args, err, test.want)
		}
	}
	var out bytes.Buffer
	root := clitest.Root()
	root.SetArgs([]string{"turn", "gateway", "--check", "-c", "../../../examples/turn/stunnerd.yaml"})
	root.SetOut(&out)
	if err := root.Execute(); err != nil || !strings.Contains(out.String(), "turn:0.0.0.0:3478?transport=udp") || !strings.Contains(out.String(), "10.0.0.0/8:<10000-20000>") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// --unauthenticated, or the environment, raises the limit of STUNner's files, which have no key for it.
func TestUnauthenticatedLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stunnerd.yaml")
	rewrite(t, path, "version: v1\nadmin: {}\nauth: {type: static, credentials: {username: u, password: p}}\nlisteners: []\nclusters: []\n")
	for _, c := range []struct {
		flag        int
		environment string
		want        int
		problem     string
	}{
		{0, "", 0, ""},
		{500, "", 500, ""},
		{0, "700", 700, ""},
		{500, "700", 500, ""},
		{-1, "", 0, "--unauthenticated -1 is not between"},
		{0, "-1", 0, envUnauthenticated + " -1 is not between"},
		{0, "many", 0, envUnauthenticated + `="many": write`},
	} {
		t.Setenv(envUnauthenticated, c.environment)
		source, err := (&gatewayFlags{config: cli.ConfigFile{Path: path}, unproven: c.flag}).source(nil)
		if c.problem != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.problem) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if plan, _, err := source.load(); err != nil || plan.Gateway.Limits.Unauthenticated != c.want {
			t.Errorf("%+v: %+v, %v", c, plan, err)
		}
	}
}

// Without its file the first serving process ends with the error, and the supervisor with it: no restart, no wait.
func TestTurnGatewayWithoutItsFileEndsAtOnce(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "gateway.yaml")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "turn", "gateway", "-c", missing)
	cmd.Env = append(os.Environ(), clitest.RunAsWeir+"=1")
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); err == nil || code != cli.ExitUsage {
		t.Errorf("exit code %d, want %d: %v", code, cli.ExitUsage, err)
	}
	if text := string(out); strings.Count(text, missing) != 1 || strings.Contains(text, "another one starts") {
		t.Errorf("want one error that names the file once:\n%s", text)
	}
}
