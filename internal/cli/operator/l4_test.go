package operator

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// What does not fit together is refused, with a remedy.
func TestFlagsOfTheServiceForLoadBalancers(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	clitest.Must(t, os.WriteFile(short, []byte("secret"), 0o600))
	key := filepath.Join(t.TempDir(), "key")
	clitest.Must(t, os.WriteFile(key, []byte("000102030405060708090a0b0c0d0e0f\n"), 0o600))
	for args, want := range map[string]string{
		"--lb-discovery 13479":                                                          "write HOST:PORT",
		"--lb-discovery :1 --config-out x":                                              "leave one out",
		"--lb-discovery :1 --balancer unix:/x":                                          "leave one out",
		"--lb-discovery :1 --lb-discovery-tls-cert x":                                   "give both or none",
		"--lb-discovery-token-file x":                                                   "give it too",
		"--lb-discovery :1 --lb-discovery-token-file " + short:                          "at least 16",
		"--lb-discovery :1 --lb-discovery-token-file /none/such":                        "no such file",
		"--lb-discovery :1 --lb-discovery-tls-cert /none/such --lb-discovery-tls-key x": "no such file",
		"--lb-discovery :1 --hash-key-file " + short:                                    "32 hexadecimal digits",
		"--lb-discovery :1 --hash-key-file " + key:                                      "",
		"--lb-discovery :1":                                                             "",
		"--lb-discovery-advertise 10.0.0.1":                                             "give it too",
		"--lb-discovery :1 --lb-discovery-advertise 10.0.0.1":                           "without TLS",
	} {
		var f l4Flags
		set := pflag.NewFlagSet("operator", pflag.ContinueOnError)
		f.add(set)
		clitest.Must(t, set.Parse(strings.Fields(args)))
		_, service, err := f.controller(slog.New(slog.DiscardHandler))
		if want == "" && (err != nil || service == nil) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// The address of the leader is in a label, whose values have no colons.
func TestLeaderIsFoundByItsLabel(t *testing.T) {
	own := l4Flags{listen: ":13479", advertise: "10.0.0.1"}
	for address, want := range map[string]string{"10.1.2.3": "https://10.1.2.3:13480", "fd00::2:0": "https://[fd00::2:0]:13480"} {
		other := l4Flags{listen: "0.0.0.0:13480", advertise: address}
		labels := other.labels()
		if wrong := validation.IsValidLabelValue(labels[advertised]); wrong != nil {
			t.Errorf("%s: %v", labels[advertised], wrong)
		}
		if o, err := own.leader(labels); err != nil || o.String() != want {
			t.Errorf("%s: %v, %v", address, o, err)
		}
	}
	for _, labels := range []map[string]string{nil, {advertised: "x_1"}, own.labels()} {
		if o, err := own.leader(labels); err == nil {
			t.Errorf("%v: %v", labels, o)
		}
	}
}
