package bench

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"

	"github.com/weir-lb/weir/internal/testbed/programs"
)

// NFQueuePeers names the programs that a run of nfqueue can compare with.
func NFQueuePeers() []string { return []string{peerNfqlb} }

// nfqPeer is another project's balancer in weir's place.
type nfqPeer struct {
	cmd    *exec.Cmd
	output *programs.LastLines
}

const nfqlbTun = "nfqlb0" // the device by which nfqlb lets fragments in again that it held back

// nfqlbScript starts nfqlb ($1) on queues ($2). Its shared memory has names that are the machine's, so it gets a /dev/shm of
// its own, which goes with it. Queue length and fragment table are as large as weir's in the same network.
const nfqlbScript = `set -e
mount -t tmpfs tmpfs /dev/shm
"$1" init
"$1" activate 101 102 103 104
exec "$1" lb --queue="$2" --qlength=4096 --tun=` + nfqlbTun + ` --ft_size=10000 --ft_buckets=10000 --ft_frag=100 --ft_ttl=50`

// startNfqlb starts nfqlb and waits until it serves its queues.
func (g *grid) startNfqlb(ctx context.Context, p *path) error {
	program, err := findPeer(peerNfqlb)
	if err != nil {
		return err
	}
	host := p.nfq.balancer(p)
	for _, command := range [][]string{
		{"ip", "tuntap", "add", "name", nfqlbTun, "mode", "tun"},
		{"ip", "link", "set", nfqlbTun, "up"},
		{"sysctl", "-q", "-w", "net.ipv4.conf." + nfqlbTun + ".rp_filter=0"},
	} {
		if _, err := host.Exec(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	if err := queueRules(ctx, p, nfqlbTun); err != nil {
		return err
	}
	queues := "0"
	if p.nfq.queues > 1 {
		queues = "0:" + strconv.Itoa(p.nfq.queues-1)
	}
	p.nfq.peer = &nfqPeer{exec.Command("unshare", "--mount", "sh", "-c", nfqlbScript, "sh", program, queues), &programs.LastLines{}} //nolint:gosec // the program that was requested
	p.nfq.peer.cmd.Stdout, p.nfq.peer.cmd.Stderr = p.nfq.peer.output, p.nfq.peer.output
	if err := g.running.Start(host, p.nfq.peer.cmd); err != nil {
		p.nfq.peer = nil
		return err
	}
	return until(ctx, nfqReady, func() error { return p.nfq.peer.failure(p) })
}

// failure says that nfqlb serves its queues no longer.
func (n *nfqPeer) failure(p *path) error {
	rows, err := readQueues(p.nfq.balancer(p))
	if err == nil && len(rows) != p.nfq.queues {
		err = fmt.Errorf("nfqlb serves %d of its %d queues%s", len(rows), p.nfq.queues, n.output.LastOutput())
	}
	return err
}
