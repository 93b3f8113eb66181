package kubetest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// clients is how many sessions a load has.
const clients = 10

// load is clients with sessions at node 0, whose requests go through another node when the test says so.
type load struct {
	t      *testing.T
	nat    *clitest.Process
	target string // the destination of the NAT
	bench  *exec.Cmd
	result bytes.Buffer
	errors bytes.Buffer
}

// newLoad starts the load in host, by way of the Pod coap-0.
func newLoad(t *testing.T, c *cluster, host *netlab.Host, weir string) *load {
	t.Helper()
	l := &load{t: t, target: c.address("coap-0")}
	l.nat = clitest.StartBy(t, host.Start, weir, "nat", "nat", "127.0.0.1:5684", "--", l.target)
	l.bench = exec.Command(weir, "coap", "bench", "coaps://127.0.0.1:5684/benchmark?rlen=40", "--clients", fmt.Sprint(clients),
		"--interval", "50ms", "--duration", "30m", "--identity", "device", "--secret", "key of the device", "--json")
	l.bench.Stdout, l.bench.Stderr = &l.result, &l.errors
	clitest.Must(t, host.Start(l.bench))
	t.Cleanup(func() { _ = l.bench.Process.Kill() }) // it has ended, unless the test has failed
	netlabtest.Eventually(t, "all clients have a session", func() bool {
		n, err := c.state("coap-0")
		return err == nil && n.Sessions == clients
	})
	return l
}

func (c *cluster) address(name string) string {
	return fmt.Sprintf("%s:5784", c.kubelet.Pod(namespace+"/"+name).Slot.Address)
}

// through leads the load by way of another Pod, and waits until its owner has answered each client a few times through it.
func (l *load) through(c *cluster, name string) {
	l.t.Helper()
	before, err := c.state(name)
	clitest.Must(l.t, err)
	if next := c.address(name); next != l.target {
		l.nat.Console("add " + next)
		l.nat.Console("remove " + l.target)
		l.target = next
	}
	netlabtest.Eventually(l.t, "requests go through "+name, func() bool {
		now, err := c.state(name)
		return err == nil && now.Counters.SentBackwarded >= before.Counters.SentBackwarded+5*clients
	}, func() string { n, err := c.state(name); return fmt.Sprintf("%+v, %v", n, err) })
}

// end ends the load: nothing was lost, and no handshake repeated.
func (l *load) end() {
	l.t.Helper()
	clitest.Must(l.t, l.bench.Process.Signal(os.Interrupt))
	err := l.bench.Wait()
	var result v1.CoAPBench
	if wrong := json.Unmarshal(l.result.Bytes(), &result); err != nil || wrong != nil {
		l.t.Fatalf("load: %v, %v\n%s\n%s", err, wrong, &l.result, &l.errors)
	}
	if s := result.Stats; s.Lost+s.Failed+s.LostSessions+s.Rehandshakes+s.HandshakeErrors != 0 || s.Handshakes != clients || s.Requests < 20*clients {
		l.t.Errorf("load: %+v", s)
	}
	l.t.Logf("%d requests, %d retransmissions", result.Stats.Requests, result.Stats.Retransmissions)
}
