package bench

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"github.com/weir-lb/weir/internal/testbed/programs"
)

// NFQueuePeers names the programs that a run of nfqueue can compare with.
func NFQueuePeers() []string { return []string{peerNfqlb} }

// nfqPeer is another project's balancer in weir's place.
type nfqPeer struct {
	cmd  *exec.Cmd
	said *programs.LastLines
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
func (b *nfqBench) startNfqlb(ctx context.Context, net *nfqNet) error {
	path, err := findPeer(peerNfqlb)
	if err != nil {
		return err
	}
	host := net.balancer()
	for _, command := range [][]string{
		{"ip", "tuntap", "add", "name", nfqlbTun, "mode", "tun"},
		{"ip", "link", "set", nfqlbTun, "up"},
		{"sysctl", "-q", "-w", "net.ipv4.conf." + nfqlbTun + ".rp_filter=0"},
	} {
		if _, err := host.Exec(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	if err := queueRules(ctx, net, nfqlbTun); err != nil {
		return err
	}
	queues := "0"
	if net.road.queues > 1 {
		queues = "0:" + strconv.Itoa(net.road.queues-1)
	}
	net.peer = &nfqPeer{exec.Command("unshare", "--mount", "sh", "-c", nfqlbScript, "sh", path, queues), &programs.LastLines{}} //nolint:gosec // the program that was asked for
	net.peer.cmd.Stdout, net.peer.cmd.Stderr = net.peer.said, net.peer.said
	if err := b.running.Start(host, net.peer.cmd); err != nil {
		net.peer = nil
		return err
	}
	for end := time.Now().Add(nfqReady); net.peer.failure(net) != nil; {
		if time.Now().After(end) {
			return fmt.Errorf("nfqlb does not serve %d queues%s", net.road.queues, net.peer.said.Said())
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// failure says that nfqlb serves its queues no longer.
func (p *nfqPeer) failure(net *nfqNet) error {
	rows, err := readQueues(net.balancer())
	if err == nil && len(rows) != net.road.queues {
		err = fmt.Errorf("nfqlb serves %d of its %d queues%s", len(rows), net.road.queues, p.said.Said())
	}
	return err
}
