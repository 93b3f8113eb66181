package operator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/kube/conditions"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// sourceAddress is where the operator serves configurations, in the namespace of the test.
const sourceAddress = "10.77.255.1:13479"

// sourceFiles writes a certificate, its key and a token, and returns the flags of both ends.
func sourceFiles(t *testing.T) (operator, balancer []string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	clitest.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(10, 77, 255, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	clitest.Must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	clitest.Must(t, err)
	folder, token := t.TempDir(), clitest.TokenFile(t)
	cert, key := filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	clitest.Must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	clitest.Must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return []string{"--lb-discovery", sourceAddress, "--lb-discovery-tls-cert", cert, "--lb-discovery-tls-key", key, "--lb-discovery-token-file", token},
		[]string{"--source", "https://" + sourceAddress, "--node", "edge", "--source-ca-file", cert, "--source-token-file", token, "--state", filepath.Join(folder, "state")}
}

// followsSource replaces the file by the operator's config discovery service, without another control plane: a Gateway is Programmed when
// the first datagram for it is forwarded, and kill -9 of the operator loses nothing.
func followsSource(e *edge, address string) {
	t := e.t
	operator, balancer := sourceFiles(t)
	operator = append(operator, "--announce", e.announcement())
	e.operator.Stop()
	e.balancer.Stop()
	e.operator = e.operate(operator...)
	clitest.Must(t, e.plane.Apply("default", []byte(example), false))
	e.listen(5301)
	netlabtest.Eventually(t, "the Gateway waits for a load balancer", func() bool { return e.programmed() == "Pending" })
	e.balancer = e.run(append(balancer, "--pin-path", e.pins)...)
	if got := e.gateway(); got != address {
		t.Errorf("the Gateway had the address %s, and has %s", address, got)
	}
	e.ready(2)
	holds := regexp.MustCompile(`(?m)^weir_announce_vrrp_active\{.*\} 1$`)
	netlabtest.Eventually(t, "the load balancer holds the address", func() bool { return holds.MatchString(clitest.HTTPGet(t, e.balancer.Socket, "/metrics")) })
	if _, err := e.ask("udp", address+":5301"); err != nil {
		t.Errorf("the first datagram after the Gateway is Programmed: %v", err)
	}
	metrics := clitest.HTTPGet(t, e.operator.Socket, "/metrics")
	if !strings.Contains(metrics, "\nweir_lb_discovery_nodes 1\n") {
		t.Error("the metrics do not count one load balancer")
	}
	statustest.Check(t, "operator", metrics)

	tcp, udp := e.traffic("tcp", address+":9300"), e.traffic("udp", address+":5300")
	clitest.Must(t, e.operator.Cmd.Process.Kill())
	<-e.operator.Ended
	e.operator = e.operate(operator...)
	e.listen(5302)
	e.gateway()
	if _, err := e.ask("udp", address+":5302"); err != nil {
		t.Errorf("the first datagram after the restart: %v", err)
	}
	tcp()
	udp()
	severalServe(e, operator, address)
}

// announcement lets the client find the addresses of the pool on its own network, and returns the file by which load balancers answer there.
func (e *edge) announcement() (path string) {
	e.t.Helper()
	if out, err := e.client.Exec(e.t.Context(), "ip", "route", "add", e.pool, "dev", "eth0"); err != nil {
		e.t.Fatalf("%v: %s", err, out)
	}
	path = filepath.Join(e.t.TempDir(), "announce.yaml")
	clitest.Must(e.t, os.WriteFile(path, []byte("announce: {vrrp: [{interface: outside, vrid: 7, interval: 100ms, hold: arp}]}\n"), 0o600))
	return path
}

// severalServe runs two operators in place of one. The load balancer is connected to the one that does not lead, and the Gateway is Programmed by the other
// one; then that ends, and the one that is left leads.
func severalServe(e *edge, options []string, address string) {
	t := e.t
	e.operator.Stop()
	options = append(slices.Clone(options), "--controllers", "l4", "--leader-election-namespace", "default", "--lb-discovery-advertise", "10.77.255.1")
	leader := e.operate(append(slices.Clone(options), "--lb-discovery", "10.77.255.1:13480")...)
	netlabtest.Eventually(t, "the first operator leads", func() bool {
		return strings.Contains(clitest.HTTPGet(t, leader.Socket, "/metrics"), "\nweir_operator_leader 1\n")
	})
	e.operator = e.operate(options...)
	e.listen(5303)
	e.gateway()
	if _, err := e.ask("udp", address+":5303"); err != nil {
		t.Errorf("through the operator that does not lead: %v", err)
	}
	if text := clitest.HTTPGet(t, leader.Socket, "/metrics"); !strings.Contains(text, "\nweir_lb_discovery_relays 1\n") || !strings.Contains(text, "\nweir_lb_discovery_nodes 0\n") {
		t.Error("the load balancer is not behind the other operator")
	}
	leader.Stop()
	e.listen(5304)
	e.gateway()
	if _, err := e.ask("udp", address+":5304"); err != nil {
		t.Errorf("after the leader has ended: %v", err)
	}
}

// listen gives the Gateway one more listener.
func (e *edge) listen(port int) {
	e.t.Helper()
	clitest.Must(e.t, e.plane.Merge("/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge", fmt.Sprintf(`{"spec": {"listeners": [
		{"name": "udp", "protocol": "UDP", "port": 5300}, {"name": "tcp", "protocol": "TCP", "port": 9300}, {"name": "more", "protocol": "UDP", "port": %d}
	]}}`, port)))
}

// programmed is the reason of the Gateway's condition; empty: it is of an older generation.
func (e *edge) programmed() string {
	e.t.Helper()
	var g gatewayv1.Gateway
	clitest.Must(e.t, e.plane.Get("/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge", &g))
	c := conditions.Find(g.Status.Conditions, "Programmed")
	if c == nil || c.ObservedGeneration != g.Generation {
		return ""
	}
	return c.Reason
}

// traffic sends requests until the returned function is called, which fails the test if one has no answer. What the network lost, the failure tells
// from what this machine was too slow for: SYNs that were repeated, and what the load balancer did with packets.
func (e *edge) traffic(network, address string) (stop func()) {
	var asked, lost int
	var last error
	var longest time.Duration
	before, reasons := e.repeatedSYNs(), e.reasons()
	ctx, cancel := context.WithCancel(e.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			began := time.Now()
			if _, err := e.ask(network, address); err != nil {
				last = fmt.Errorf("after %v, at %v: %w", time.Since(began), began.Format(time.StampMilli), err)
				lost++
			} else {
				longest = max(longest, time.Since(began))
			}
			asked++
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return func() {
		e.t.Helper()
		cancel()
		<-done
		e.t.Logf("%s: %d requests, %d lost, the longest other one took %v, %d SYNs were repeated", network, asked, lost, longest, e.repeatedSYNs()-before)
		if lost > 0 || asked < 10 {
			e.t.Errorf("%s: %d of %d requests had no answer: %v\npackets before:\n%s\nafter:\n%s", network, lost, asked, last, reasons, e.reasons())
		}
	}
}

// reasons are the load balancer's counts of packets.
func (e *edge) reasons() string {
	e.t.Helper()
	var lines strings.Builder
	for line := range strings.Lines(clitest.HTTPGet(e.t, e.balancer.Socket, "/metrics")) {
		if strings.HasPrefix(line, "weir_packets_total{") && !strings.HasSuffix(line, " 0\n") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// repeatedSYNs is how many SYNs the client's namespace has sent again.
func (e *edge) repeatedSYNs() (count int) {
	e.t.Helper()
	clitest.Must(e.t, e.client.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		lines := strings.Split(string(text), "\n")
		at := slices.Index(strings.Fields(lines[0]), "TCPSynRetrans")
		if at < 0 {
			return errors.New("the kernel does not count TCPSynRetrans")
		}
		count, err = strconv.Atoi(strings.Fields(lines[1])[at])
		return err
	}))
	return count
}
