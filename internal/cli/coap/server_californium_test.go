package coap

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/coap/node"
)

// configured reads a command line of weir coap server.
func configured(t *testing.T, args ...string) (node.Config, error) {
	t.Helper()
	var f coapServerFlags
	cmd := coapServerCommand(&f)
	new(cobra.Command).AddCommand(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		return node.Config{}, cmd.FlagErrorFunc()(cmd, err)
	}
	return coapServerConfig(cmd, &f)
}

// Every option of the help text of Californium's extended plugtest server is taken, or refused with what to do instead.
func TestEveryCaliforniumOption(t *testing.T) {
	const alone = "--dtls-cluster 127.0.0.1:15784;127.0.0.1:15884;1"
	instead := map[string]string{
		"--dtls-cluster-group h:15884":                                      "add --dtls-cluster with this node",
		"--dtls-cluster-group-security secret":                              "add --dtls-cluster with this node",
		"--dtls-cluster-mac":                                                "there is no cluster",
		"--dtls-cluster :15784;:15884;1,---;192.0.2.1:25884;2":              "is bound to loopback",
		alone + " --dtls-cluster-mac":                                       "--dtls-cluster-group-security",
		alone + " --dtls-cluster-group :15884":                              "names no host",
		alone + " --dtls-cluster-group 15884":                               "no address",
		"--k8s-dtls-cluster :15784;:15884":                                  "for example :5784;:5884;5884",
		"--k8s-dtls-cluster :15784;:15884;0":                                "no port",
		"--k8s-dtls-cluster :15784;:15884;5884 --dtls-cluster-group h:5884": "remove --dtls-cluster",
		"--k8s-monitor :8080":                                               "--metrics",
		"--k8s-restore :5884":                                               "weir coap upgrade",
		"--local-restore :5884":                                             "weir coap upgrade",
		"--other-restore :5884":                                             "weir coap upgrade",
		"--restore-max-age 12":                                              "weir coap upgrade",
		"--store-file state.bin":                                            "--state DIR",
		"--store-max-age 12":                                                "--session-idle",
		"--store-password64 c2VjcmV0":                                       "tmpfs",
		"--oscore":                                                          "--oscore test",
		"--oscore --no-tcp":                                                 "--oscore test",
		"--diagnose --no-diagnose":                                          "exclude each other",
		"--oscore devices.yaml --no-oscore":                                 "exclude each other",
		"--benchmark --no-benchmark":                                        "exclude each other",
		"--notify-interval soon":                                            "write 5s",
		"--notify-interval 1[ms]":                                           "not between",
		"--notify-interval 500":                                             "write 500ms or 500s, not 500",
		"--interfaces nosuch0":                                              `no interface "nosuch0"`,
		"--interfaces-pattern (":                                            "no regular expression",
		"--no-loopback --no-external":                                       "no address is left",
		"--no-dtls-cluster-backward":                                        "there is no cluster",
		"--client-auth SOMETIMES":                                           "not none, wanted or needed",
	}
	for line, want := range instead {
		if _, err := configured(t, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	for _, line := range []string{
		"--benchmark", "--no-benchmark", "--client-auth NONE", "--client-auth WANTED --trust-all", "--client-auth NEEDED --trust-all",
		"--dtls-cluster :15784;localhost:15884;1,---;localhost:25884;2 --dtls-cluster-backward --no-dtls-cluster-mac",
		"--dtls-cluster :15784;localhost:15884;1,---;localhost:25884;2 --no-dtls-cluster-backward",
		alone + " --dtls-cluster-group localhost:25884,192.0.2.1:15884 --dtls-cluster-group-security secret --dtls-cluster-mac",
		alone + " --dtls-cluster-group-security secret --no-dtls-cluster-mac",
		"--dtls-cluster :15784;:15884;1,---;192.0.2.1:25884;2 --dtls-cluster-group-security secret",
		"--dtls-only", "--interfaces lo", "--interfaces-pattern l.", "--external", "--no-external", "--loopback", "--ipv4", "--no-ipv6", "--ipv6",
		"--plugtest", "--no-plugtest", "--tcp", "--no-tcp", "--trust-all", "--diagnose", "--no-diagnose", "--echo-delay", "--no-echo-delay", "--no-oscore", "--oscore test", "--notify-interval 5[s]",
		"--psk-file devices.psk",
		"--benchmark --no-plugtest --no-external --no-ipv6 --no-tcp", // of published command lines
		"--no-loopback --no-ipv6 --dtls-only --benchmark --trust-all",
	} {
		if strings.Contains(line, "--no-loopback") && !external(t) {
			continue
		}
		if _, err := configured(t, strings.Fields(line)...); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// The names of these options as keys in the file are keys, or the error says what to write.
func TestEveryCaliforniumKey(t *testing.T) {
	name := filepath.Join(t.TempDir(), "node.yaml")
	for line, want := range map[string]string{
		"benchmark: false": "", "diagnose: true": "", "echo_delay: true": "", "external: false": "", "ipv4: false": "", "ipv6: false": "", "loopback: true": "",
		"plugtest: true": "", "trust_all: true": "", "client_auth: wanted": "", "notify_interval: 5s": "", "psk_file: devices.psk": "", "interfaces_pattern: [l.]": "", "oscore: test.yaml": "",
		"client_auth: SOMETIMES": "none, wanted or needed", "notify_interval: 5[s]": "such as 500ms",
		"tcp: false": "listen_tcp", "no_tcp: true": "listen_tcp", "dtls_only: true": "leave out listen", "no-external: true": "external: false", "no_oscore: true": "oscore_test: false",
		"dtls_cluster: a": "nodes:", "dtls_cluster_group: a": "group:", "dtls_cluster_group_security: a": "security:", "dtls_cluster_mac: true": "mac:", "dtls-cluster-backward: true": "backward:",
		"k8s_dtls_cluster: a": "--k8s-dtls-cluster", "k8s_monitor: a": "--metrics", "store_file: a": "--state", "store_max_age: 1": "session_idle", "store_password64: a": "tmpfs",
		"k8s_restore: a": "upgrade", "local_restore: a": "upgrade", "other_restore: a": "upgrade", "restore_max_age: 1": "upgrade",
	} {
		if err := os.WriteFile(name, []byte("dtls: [\":1\"]\n"+line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := configured(t, "-c", name)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// external reports whether this machine has an IPv4 address besides loopback.
func external(t *testing.T) bool {
	t.Helper()
	_, err := configured(t, "--no-loopback", "--no-ipv6")
	return err == nil
}

func TestListenersByDefault(t *testing.T) {
	for line, want := range map[string]string{
		"":                       ":5783 | :5784 | :5783 | :5784 | ",
		"--no-tcp":               ":5783 | :5784 |  |  | ",
		"--dtls-only":            " | :5784 |  |  | ",
		"--plugtest":             ":5783 | :5784 | :5783 | :5784 | :5683 :5684 :5683 :5684",
		"--plugtest --no-tcp":    ":5783 | :5784 |  |  | :5683 :5684",
		"--psk-file keys":        ":5783 | :5784 | :5783 |  | ",
		"--listen :1":            ":1 | :5784 |  |  | ",
		"--listen :1 --dtls :2":  ":1 | :2 |  |  | ",
		"--listen :1 --tcp":      ":1 | :5784 | :1 | :5784 | ",
		"--listen-tcp :3":        " | :5784 | :3 |  | ",
		"--listen :1 --plugtest": ":1 | :5784 |  |  | all",
		"--dtls-cluster :15784;localhost:15884;1,---;localhost:25884;2": " |  |  |  | ",
	} {
		cfg, err := configured(t, strings.Fields(line)...)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		lists := []string{strings.Join(cfg.Listen, " "), strings.Join(cfg.DTLS, " "), strings.Join(cfg.TCP, " "), strings.Join(cfg.TLS, " "), ""}
		if p := cfg.PlugtestAt; p != nil {
			lists[4] = strings.Join(slices.Concat(p.Listen, p.DTLS, p.TCP, p.TLS), " ")
		}
		if cfg.Plugtest {
			lists[4] = "all"
		}
		if got := strings.Join(lists, " | "); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	cfg, err := configured(t, "--notify-interval", "250[ms]")
	if err != nil || cfg.NotifyInterval != 250*time.Millisecond {
		t.Error(cfg.NotifyInterval, err)
	}
}

// The secret between nodes comes from a flag, from a file, or from the environment variables of Californium: the first of these counts.
func TestClusterSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(file, []byte("cluster:\n  nodes: [{id: 1, dtls: \":1\", management: \":2\"}]\n  security: {identity: me, file: cluster.key}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const node = "--dtls-cluster :1;:2;1"
	for _, c := range []struct{ identity, secret, line, want string }{
		{"", "", node, "none"},
		{"seed", "c1BKR285VGdpTlJ2ak1UYg==", node, "seed sPJGo9TgiNRvjMTb  true"},
		{"seed", "c1BKR285VGdpTlJ2ak1UYg==", node + " --no-dtls-cluster-mac", "seed sPJGo9TgiNRvjMTb  false"},
		{"seed", "c1BKR285VGdpTlJ2ak1UYg==", node + " --dtls-cluster-group-security other", "dtls-mgmt other  true"},
		{"seed", "c1BKR285VGdpTlJ2ak1UYg==", "-c " + file, "me  cluster.key true"},
		{"seed", "c1BKR285VGdpTlJ2ak1UYg==", "-c " + file + " --dtls-cluster-group-security other", "dtls-mgmt other  true"},
		{"seed", "", "", "none"},
		{"seed", "", node, "DTLS_CID_MGMT_SECRET_BASE64 is not"},
		{"", "c1BKR285VGdpTlJ2ak1UYg==", node, "DTLS_CID_MGMT_IDENTITY is not"},
		{"seed", "?", node, "DTLS_CID_MGMT_SECRET_BASE64 is no base64"},
		{"", "", node + " --dtls-cluster-group-security=", "the secret is empty"},
	} {
		t.Setenv(identityVariable, c.identity)
		t.Setenv(secretVariable, c.secret)
		cfg, err := configured(t, strings.Fields(c.line)...)
		got := "none"
		switch {
		case err != nil:
			got = err.Error()
		case cfg.Cluster != nil && cfg.Cluster.Security != nil:
			s := cfg.Cluster.Security
			got = fmt.Sprintf("%s %s %s %t", s.Identity, s.Secret, s.File, cfg.Cluster.UsesMAC())
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
