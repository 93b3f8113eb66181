package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// The load during the upgrade of the package: TCP connections through the load balancer, and TURN allocations.
const (
	packageConnections = 1000
	packageAllocations = 20
)

// packageNetwork puts the other end of veth0, on which the load balancer has its program, into a network of clients, and a backend behind veth2,
// which answers clients directly (mode l2dsr).
const packageNetwork = `
ip netns add clients; ip netns add backend
ip link set veth1 netns clients
ip link add veth2 type veth peer name veth3 netns backend
ip -n clients link add direct type veth peer name direct netns backend
ip addr add 10.66.0.1/24 dev veth0; ip addr add 10.66.1.1/24 dev veth2; ip link set veth2 up
for at in clients backend; do ip -n $at link set lo up; ip -n $at link set direct up; done
ip -n clients addr add 10.66.0.2/24 dev veth1; ip -n clients addr add 10.66.2.1/24 dev direct; ip -n clients link set veth1 up
ip -n clients route add 10.66.9.9 via 10.66.0.1
ip -n backend addr add 10.66.1.2/24 dev veth3; ip -n backend addr add 10.66.2.2/24 dev direct; ip -n backend link set veth3 up
ip -n backend addr add 10.66.9.9/32 dev lo; ip -n backend route add 10.66.0.0/24 via 10.66.2.1
cat >> /etc/weir/lb.yaml <<'END'
- name: web
  mode: l2dsr
  vips: [{address: 10.66.9.9, protocol: tcp, port: 5000}]
  backends: [{name: c, address: 10.66.1.2}]
END
cat > /etc/weir/turn.yaml <<'END'
realm: weir
auth: {users: [{name: u, password: p}]}
listeners: [{name: udp, address: 127.0.0.1, port: 3478, routes: [here]}]
clusters: [{name: here, endpoints: [127.66.0.0/16]}]
END
chmod 644 /etc/weir/turn.yaml
systemctl reload weir-lb weir-turn`

// packageLoad is what goes on during the upgrade.
type packageLoad struct {
	p          *packaged
	server     *exec.Cmd
	client     *exec.Cmd
	clientOut  bytes.Buffer
	clientErr  clitest.LockedBuffer
	stopRelays func() (sent, lost uint64)
	drops      uint64 // of the kernel's queues, before
}

// startLoad returns when all connections and allocations are there.
func (p *packaged) startLoad() *packageLoad {
	p.t.Helper()
	p.run("bash", "-ec", packageNetwork)
	in := func(namespace, command string) *exec.Cmd {
		return p.Command("sh", "-c", "echo $$ > /run/"+namespace+".pid; exec ip netns exec "+namespace+" "+command)
	}
	l := &packageLoad{p: p, server: in("backend", "weir tcp server --listen 10.66.9.9:5000 --workers 1 -q")}
	clitest.Must(p.t, clitest.StartChild(l.server))
	l.client = in("clients", "weir tcp client --to 10.66.9.9:5000 --connections "+strconv.Itoa(packageConnections)+" --heartbeat 1s --workers 1 --json")
	l.client.Stdout, l.client.Stderr = &l.clientOut, &l.clientErr
	clitest.Must(p.t, clitest.StartChild(l.client))
	clitest.WaitFor(p.t, &l.clientErr, `(?m)^ +\d+ +`+strconv.Itoa(packageConnections)+` `)
	if n := p.established(); n != packageConnections {
		p.t.Errorf("the backend has %d connections, of %d", n, packageConnections)
	}
	l.drops = netlabtest.QueueDrops(p.t)
	l.stopRelays = startRelays(p.t, p.Command("weir", "bench", "traffic", "turn", "--server", "127.0.0.1:3478", "--user", "u", "--password", "p", "--sink", "127.66.0.9:0",
		"--clients", strconv.Itoa(packageAllocations), "--size", "100", "--burst", "1"))
	return l
}

// established are the connections of the backend.
func (p *packaged) established() int {
	p.t.Helper()
	n, err := strconv.Atoi(p.run("sh", "-c", "ip netns exec backend grep -c ' 01 ' /proc/net/tcp || true"))
	clitest.Must(p.t, err)
	return n
}

// startRelays sends datagrams through allocations, both ways, in phases that follow each other until stop is called.
func startRelays(t *testing.T, cmd *exec.Cmd) (stop func() (sent, lost uint64)) {
	t.Helper()
	var errOut clitest.LockedBuffer
	in, err := cmd.StdinPipe()
	clitest.Must(t, err)
	out, err := cmd.StdoutPipe()
	clitest.Must(t, err)
	cmd.Stderr = &errOut
	clitest.Must(t, clitest.StartChild(cmd))
	answers := json.NewDecoder(out)
	var opened json.RawMessage
	if err := answers.Decode(&opened); err != nil {
		t.Fatalf("allocations: %v\n%s", err, errOut.String())
	}
	type result struct {
		sent, lost uint64
		err        error
	}
	var ends atomic.Bool
	results := make(chan result, 1)
	go func() {
		var r result
		for !ends.Load() && r.err == nil {
			var report v1.TurnLoad
			_, err := in.Write([]byte(`{"rate": 500, "duration_ns": 250000000, "direction": "both", "silence_ns": 30000000000}` + "\n"))
			r.err = errors.Join(err, answers.Decode(&report))
			r.sent += report.Up.Sum.Sent + report.Down.Sum.Sent
			r.lost += report.Up.Sum.Lost + report.Down.Sum.Lost
		}
		r.err = errors.Join(r.err, in.Close(), cmd.Wait())
		results <- r
	}()
	return func() (sent, lost uint64) {
		t.Helper()
		ends.Store(true)
		r := <-results
		if r.err != nil {
			t.Errorf("allocations: %v\n%s", r.err, errOut.String())
		}
		return r.sent, r.lost
	}
}

// end ends the load and checks that nothing was lost, but for datagrams that the kernel may have dropped for floods of other tests.
func (l *packageLoad) end() {
	l.p.t.Helper()
	sent, lost := l.stopRelays()
	if drops := netlabtest.QueueDrops(l.p.t) - l.drops; sent == 0 || lost > drops {
		l.p.t.Errorf("%d of %d datagrams of TURN allocations were lost, %d packets dropped by the kernel", lost, sent, drops)
	}
	l.p.run("sh", "-c", "kill -INT $(cat /run/clients.pid)")
	_ = l.client.Wait() // its exit code tells a void result too, as that of a busy machine
	l.p.run("sh", "-c", "kill -INT $(cat /run/backend.pid)")
	_ = l.server.Wait()
	var report v1.TCPReport
	if err := json.Unmarshal(l.clientOut.Bytes(), &report); err != nil {
		l.p.t.Fatalf("connections: %v\n%s\n%s", err, l.clientErr.String(), l.clientOut.String())
	}
	if r := report; r.FullAt.IsZero() || r.Totals.Opened != packageConnections || r.Totals.Lost != 0 {
		l.p.t.Errorf("connections: %+v, full at %v", r.Totals, r.FullAt)
	}
}
