package gateway

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/turn/allocation"
)

// Reasons of the gateway's own, after those of package allocation.
const (
	// reasonSendRefused: the kernel refused a datagram: no route, no buffer, or too long. Remedy: look at the route to the peer.
	reasonSendRefused = allocation.ReasonCount + iota
	// reasonQueueFull: the client's connection is too slow for what its peers send.
	reasonQueueFull
	// reasonReceiveError: a socket of a listener could not be read. Remedy: the log has the kernel's error.
	reasonReceiveError
	// reasonPeerError: the network answered an earlier datagram with an ICMP error. Remedy: none; peers that are gone do this.
	reasonPeerError

	reasonCount
)

func reasonName(r allocation.Reason) string {
	switch r {
	case reasonSendRefused:
		return "send_refused"
	case reasonQueueFull:
		return "queue_full"
	case reasonReceiveError:
		return "receive_error"
	case reasonPeerError:
		return "peer_error"
	}
	return r.String()
}

// counts is what one worker counts for one listener or cluster. The worker adds; any goroutine may load.
type counts struct {
	reasons  [reasonCount]atomic.Uint64
	up, down struct{ packets, bytes atomic.Uint64 }
	opened   atomic.Uint64

	mu       sync.Mutex // guards allocate, which only Allocate requests with valid credentials change
	allocate metrics.Histogram

	_ [64]byte // keeps another worker's counters off this cache line
}

func (n *counts) add(r allocation.Reason, times int) { n.reasons[r].Add(uint64(times)) }

// allocated counts the time that the relay addresses of an allocation took.
func (n *counts) allocated(took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.allocate.Observe(took)
}

// into adds the counters to a sum.
func (n *counts) into(sum *Counts, reasons map[string]uint64) {
	sum.Up.Packets += n.up.packets.Load()
	sum.Up.Bytes += n.up.bytes.Load()
	sum.Down.Packets += n.down.packets.Load()
	sum.Down.Bytes += n.down.bytes.Load()
	sum.Opened += n.opened.Load()
	for r := range n.reasons {
		if times := n.reasons[r].Load(); times > 0 && r != int(allocation.OK) && reasons != nil {
			reasons[reasonName(allocation.Reason(r))] += times
		}
	}
}

// relayed counts relayed user data for the allocation, the listener and the cluster.
func relayed(c *client, cluster *counts, down bool, packets, bytes int, now int64) {
	if down {
		c.a.Down.Add(packets, bytes, now)
		c.counts.down.packets.Add(uint64(packets))
		c.counts.down.bytes.Add(uint64(bytes))
		cluster.down.packets.Add(uint64(packets))
		cluster.down.bytes.Add(uint64(bytes))
		return
	}
	c.a.Up.Add(packets, bytes, now)
	c.counts.up.packets.Add(uint64(packets))
	c.counts.up.bytes.Add(uint64(bytes))
	cluster.up.packets.Add(uint64(packets))
	cluster.up.bytes.Add(uint64(bytes))
}

// tally sums up consecutive packets between the same ends, so that the counters are updated once per run.
type tally struct {
	c              *client
	cluster        *counts
	down           bool
	packets, bytes int
	now            int64
}

func (t *tally) add(c *client, cluster *counts, down bool, bytes int, now int64) {
	if t.c != c || t.cluster != cluster || t.down != down {
		t.flush()
		t.c, t.cluster, t.down, t.now = c, cluster, down, now
	}
	t.packets++
	t.bytes += bytes
}

func (t *tally) flush() {
	if t.c != nil {
		relayed(t.c, t.cluster, t.down, t.packets, t.bytes, t.now)
		*t = tally{}
	}
}

// cluster returns the worker's counters of a cluster.
func (w *worker) cluster(id uint16) *counts {
	if int(id) < len(w.clusters) && w.clusters[id] != nil {
		return w.clusters[id]
	}
	w.clusterM.Lock()
	defer w.clusterM.Unlock()
	for len(w.clusters) <= int(id) {
		w.clusters = append(w.clusters, nil)
	}
	w.clusters[id] = &counts{}
	return w.clusters[id]
}

// eachCluster calls yield with the counters of each cluster. Other goroutines call it.
func (w *worker) eachCluster(yield func(id uint16, n *counts)) {
	w.clusterM.RLock()
	defer w.clusterM.RUnlock()
	for id, n := range w.clusters {
		if n != nil {
			yield(uint16(id), n)
		}
	}
}
