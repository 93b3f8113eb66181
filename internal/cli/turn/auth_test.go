package turn

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pion/turn/v5"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// allocate makes an allocation with a user's name and password, and returns why it cannot.
func allocate(t *testing.T, server, user, password string) error {
	t.Helper()
	client := &turn.ClientConfig{TURNServerAddr: server, Username: user, Password: password}
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	clitest.Must(t, err)
	defer conn.Close()
	client.Conn = conn
	c, err := turn.NewClient(client)
	clitest.Must(t, err)
	defer c.Close()
	clitest.Must(t, c.Listen())
	relay, err := c.Allocate()
	if err != nil {
		return err
	}
	return relay.Close()
}

// The gateway accepts the credentials that the service gives out, of its live configuration, and no others; what the operator deleted
// while the service was not connected is forgotten. No secret is in the log, the status, the metrics or a command line.
func TestTurnAuth(t *testing.T) {
	service, at, health, http := newConfigService(t), netlabtest.UDPAddress(t), clitest.FreeTCP(t), clitest.FreeTCP(t)
	const key = "key-of-the-application"
	keyFile := filepath.Join(t.TempDir(), "key")
	clitest.Must(t, os.WriteFile(keyFile, []byte(key+"\n"), 0o600))
	config := func(secret string) string {
		text := strings.Replace(stunnerConfig(at, health, "127.0.0.1"), fmt.Sprintf(`"type":"static","realm":%q,"credentials":{"username":%q,"password":%q}`, flowRealm, flowUser, flowPassword),
			fmt.Sprintf(`"type":"ephemeral","realm":%q,"credentials":{"secret":%q}`, flowRealm, secret), 1)
		return strings.Replace(text, `"routes":`, fmt.Sprintf(`"public_address":%q,"public_port":%d,"routes":`, at.Addr(), at.Port()), 1)
	}
	const first, second = "the-first-secret", "the-second-secret"
	service.set(config(first))
	clitest.Must(t, service.Set(discovery.ID{Namespace: "other", Name: "gone"}, []byte(strings.ReplaceAll(config(first), "media/udp", "other/gone"))))
	g := startStunnerd(t, at.String(), "-w", "-c", service.address, "-i", "media/udp", "--health-address", "", "--no-supervisor")
	g.until("it is ready", func(s *v1.TurnStatus) bool { return s.Ready })
	auth := clitest.Start(t, "auth", "turn", "auth", "--discovery", service.address, "--listen", http.String(), "--key-file", keyFile, "--metrics=")
	status := func() (s v1.TurnAuthStatus) {
		t.Helper()
		var text json.RawMessage
		auth.Status(&text)
		clitest.Must(t, clitest.ReadStrictly(text, &s))
		return s
	}
	netlabtest.Eventually(t, "two gateways", func() bool { return status().Configs == 2 }, auth.Out.String)
	credentials := func() (user, password string) {
		t.Helper()
		body, err := fetch(fmt.Sprintf("http://%v/ice?service=turn&username=alice&ttl=600&namespace=media&gateway=udp&key=%s", http, key))
		clitest.Must(t, err)
		var ice struct {
			ICEServers []struct {
				Username, Credential string
				URLs                 []string
			} `json:"iceServers"`
		}
		clitest.Must(t, json.Unmarshal([]byte(body), &ice))
		if len(ice.ICEServers) != 1 || len(ice.ICEServers[0].URLs) != 1 || ice.ICEServers[0].URLs[0] != "turn:"+at.String()+"?transport=udp" {
			t.Fatal(body)
		}
		return ice.ICEServers[0].Username, ice.ICEServers[0].Credential
	}
	user, old := credentials()
	if err := allocate(t, at.String(), user, old); err != nil {
		t.Errorf("with credentials of the service: %v", err)
	}
	if expiry, name, _ := strings.Cut(user, ":"); name != "alice" {
		t.Errorf("user %q", user)
	} else if _, err := strconv.Atoi(expiry); err != nil {
		t.Error(err)
	}
	service.set(config(second))
	g.until("the gateway has another secret", func(s *v1.TurnStatus) bool { return s.Config.Reloads >= 2 || s.Config.Generation >= 3 })
	fresh := ""
	netlabtest.Eventually(t, "the service has another secret", func() bool { user, fresh = credentials(); return allocate(t, at.String(), user, fresh) == nil }, auth.Out.String)
	if err := allocate(t, at.String(), user, old); err == nil {
		t.Error("a password of the secret before is accepted")
	}
	if body, err := fetch(fmt.Sprintf("http://%v/?service=turn", http)); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("without a key: %v %s", err, body)
	}

	service.end()
	netlabtest.Eventually(t, "the connection ends", func() bool { return !status().Discovery.Connected }, auth.Out.String)
	credentials() // of the last configuration
	service.begin()
	service.set(config(second)) // other/gone is not there any more
	netlabtest.Eventually(t, "what was deleted meanwhile is forgotten", func() bool { return status().Configs == 1 }, auth.Out.String)
	shown := auth.Out.String() + g.Out.String() + clitest.HTTPGet(t, auth.Socket, "/status") + clitest.HTTPGet(t, auth.Socket, "/metrics") + clitest.HTTPGet(t, g.Socket, "/status")
	for _, pid := range []int{auth.Cmd.Process.Pid, g.Cmd.Process.Pid} {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		clitest.Must(t, err)
		shown += string(line)
	}
	for _, hidden := range []string{first, second, key, old, fresh, "alice"} {
		if i := strings.Index(shown, hidden); i >= 0 {
			t.Errorf("%q is shown: …%.200s", hidden, shown[max(0, i-100):])
		}
	}
	if !strings.Contains(shown, "weir_turn_auth_issued_total ") || !strings.Contains(shown, "weir_turn_auth_refused_total 1") {
		t.Error("the metrics lack what was issued")
	}
}

// Flags that cannot be meant are refused with their names.
func TestTurnAuthUsage(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	clitest.Must(t, os.WriteFile(empty, nil, 0o600))
	for want, args := range map[string][]string{
		"--discovery: ":           {"--discovery", "ftp://x"},
		"--key-file: ":            {"--key-file", empty + ".missing"},
		"it is empty; write":      {"--key-file", empty},
		"--public-address: ":      {"--public-address", "a b"},
		"--listen: ":              {"--listen", "nonsense"},
		"has no arguments, \"x\"": {"x"},
	} {
		if _, err := clitest.Execute(t, append([]string{"turn", "auth"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

// A tunnel through a gateway that is named as in Kubernetes has the address and the credentials of its configuration, and follows a change
// of the secret.
func TestTurnCatLooksUpItsGateway(t *testing.T) {
	service, at, health := newConfigService(t), netlabtest.UDPAddress(t), clitest.FreeTCP(t)
	config := strings.Replace(stunnerConfig(at, health, "127.0.0.1"), `"routes":`, fmt.Sprintf(`"public_address":%q,"public_port":%d,"routes":`, at.Addr(), at.Port()), 1)
	service.set(config)
	g := startStunnerd(t, at.String(), "-w", "-c", service.address, "-i", "media/udp", "--health-address", "", "--no-supervisor")
	g.until("it is ready", func(s *v1.TurnStatus) bool { return s.Ready })
	echo := clitest.UDPEcho(t)
	cat := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"turn", "cat", "-"}, args...)...)
		cmd.Stdin = strings.NewReader("hello\n")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := cat("k8s://media/udp:udp", "udp://"+echo, "--discovery", service.address)
	if err != nil || !strings.Contains(out, "hello") || strings.Contains(out, flowPassword) {
		t.Errorf("%v: %s", err, out)
	}
	for _, c := range []struct{ gateway, want string }{
		{"k8s://media/udp:other", "no listener with a public address"}, {"k8s:///udp:udp", discovery.ErrNotFound.Error()}, {"k8s://media/udp", "write k8s://NAMESPACE/GATEWAY:LISTENER"},
	} {
		if out, err := cat(c.gateway, "udp://"+echo, "--discovery", service.address); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v: %s", c.gateway, err, out)
		}
	}
}

// A configuration is read again for a session that begins later, and the last one counts while the service is away.
func TestCredentialsAreLookedUpAgain(t *testing.T) {
	secret, failing, reads := "one", false, 0
	g := &clusterGateway{ttl: time.Hour, user: "u", read: func(context.Context) ([]byte, error) {
		if reads++; failing {
			return nil, errors.New("away")
		}
		return []byte(`{"admin":{"name":"n/g"},"auth":{"type":"ephemeral","credentials":{"secret":"` + secret + `"}},"listeners":[{"name":"n/g/l","public_address":"192.0.2.1"}]}`), nil
	}}
	g.gateway.Namespace, g.gateway.Name, g.gateway.Listener = "n", "g", "l"
	start := time.Now()
	issued, err := g.look(t.Context(), start)
	clitest.Must(t, err)
	if issued.URIs[0] != "turn:192.0.2.1:3478?transport=udp" {
		t.Errorf("%+v", issued)
	}
	valid := func(secret string, after time.Duration) bool {
		t.Helper()
		c, err := g.credentials(start.Add(after))
		clitest.Must(t, err)
		mac := hmac.New(sha1.New, []byte(secret))
		mac.Write([]byte(c.User))
		return strings.HasSuffix(c.User, ":u") && !c.Expires.IsZero() && c.Password == base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	secret = "two"
	if !valid("one", time.Second) || reads != 1 {
		t.Errorf("at once: %d reads", reads)
	}
	if !valid("two", lookAgain) || reads != 2 {
		t.Errorf("later: %d reads", reads)
	}
	failing = true
	if !valid("two", 2*lookAgain) || reads != 3 {
		t.Errorf("while the service is away: %d reads", reads)
	}
}
