package status

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
)

// Balancer writes `weir lb status`: the services, then what each part of the data path adds.
func Balancer(w io.Writer, status *v1.LBStatus) error {
	table := terminal.NewTable(w, false)
	fmt.Fprintf(table, "data path %s, %s, applied %s ago\n", status.Datapath, numbers(&status.BalancerStatus), time.Since(status.AppliedAt).Round(time.Second))
	if status.Unsaved {
		fmt.Fprintln(table, "run-time changes are not in the file, and a restart loses them: weir lb diff, save, revert")
	}
	fmt.Fprintln(table, "SERVICE\tSTATE\tMODE\tBACKENDS UP\tVIPS")
	for i := range status.Services {
		s := &status.Services[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", s.Name, s.State, s.Mode, BackendsUp(s), addressesText(s))
	}
	hosts(table, status.Names)
	if status.Announce != nil {
		fmt.Fprintln(table)
		announced(table, status.Announce)
	}
	if status.Sync != nil {
		fmt.Fprintln(table)
		shared(table, status.Sync)
	}
	for i := range status.Services {
		if s := &status.Services[i]; s.Cluster != nil {
			clusterOwners(table, s)
		}
	}
	if status.Queues != nil {
		queues(table, status.Queues)
	}
	if f := status.Fast; f != nil {
		text := "no fast path: " + f.Why
		if f.InUse {
			text = "fast path in use: these programs mark what they can, the queue gets the rest"
		}
		fmt.Fprintf(table, "\n%s\n%s", text, queuedTwice(status))
	}
	if status.Kernel != nil {
		kernel(table, status.Kernel)
	}
	return table.Flush()
}

// numbers are those of the configuration and of the snapshot that it was compiled to.
func numbers(status *v1.BalancerStatus) string {
	text := fmt.Sprintf("snapshot %d", status.Generation)
	if status.ConfigGeneration > 0 {
		text = fmt.Sprintf("configuration %d, %s", status.ConfigGeneration, text)
	}
	return text
}

// hosts writes the DNS names of backends.
func hosts(w io.Writer, names []v1.DNSName) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintln(w, "\nHOST\tADDRESSES\tLOOKUPS\tFAILED\tLAST ANSWER\tLAST ERROR")
	for i := range names {
		n := &names[i]
		addresses := make([]string, len(n.Addresses))
		for j := range addresses {
			addresses[j] = n.Addresses[j].String()
		}
		text := cmp.Or(strings.Join(addresses, " "), "none")
		if n.Dropped > 0 {
			text += fmt.Sprintf(" and %d more, not used", n.Dropped)
		}
		answer := "none"
		if !n.Changed.IsZero() {
			answer = fmt.Sprintf("%.0f s ago", n.Age)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", n.Name, text, n.Lookups, n.Failures, answer, cmp.Or(n.Error, "none"))
	}
}

// BackendsUp counts the backends that take new flows and are not failing: in fail-open, all that take any fail.
func BackendsUp(s *v1.ServiceStatus) string {
	if s.State == "fail_open" {
		return fmt.Sprintf("0 of %d (fail open)", len(s.Backends))
	}
	up := 0
	for i := range s.Backends {
		if s.Backends[i].Share > 0 {
			up++
		}
	}
	return fmt.Sprintf("%d of %d", up, len(s.Backends))
}

// queues writes what netfilter queues add.
func queues(table io.Writer, q *v1.NFQueueStatus) {
	full := "dropped"
	if q.FailOpen {
		full = "let through without a mark (fail-open)"
	}
	fmt.Fprintf(table, "\nqueue length %d, receive buffer %d bytes, copy range %d bytes, batch %d; what finds its queue full is %s\n",
		q.Length, q.ReceiveBuffer, q.CopyRange, q.Batch, full)
	fmt.Fprintln(table, "QUEUE\tPORT ID\tWAITING\tHELD\tPACKETS\tQUEUE FULL\tBUFFER FULL\tMISSING IDS\tFLOWS\tOF")
	for i := range q.Queues {
		s := &q.Queues[i]
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", s.Number, s.PortID, s.Waiting, s.Held, s.Packets, s.QueueDrops,
			s.UserDrops, s.MissingIDs, s.Flows, s.MaxFlows)
	}
	if t := &q.FlowTable; t.Evicted+t.Refused+t.Displaced > 0 {
		fmt.Fprintf(table, "flow table: %d of %d entries, %d proven; was full: %d unproven flows evicted, %d new flows refused, %d proven ones displaced by CID\n",
			t.Flows, t.MaxFlows, t.Proven, t.Evicted, t.Refused, t.Displaced)
	}
	if q.Kept != nil {
		keptFlows(table, q.Kept)
	}
	f := &q.Fragments
	fmt.Fprintf(table, "fragments: %d datagrams remembered of %d entered; %d fragments were held, %d could not be, %d waited in vain; %d datagrams found no room\n",
		f.Datagrams, f.Inserts, f.Waited, f.Poisoned, f.Unanswered, f.Refused)
	if evicted := f.EvictedKnown + f.EvictedWaiting + f.EvictedLost; evicted+f.HeldEvicted > 0 {
		fmt.Fprintf(table, "to make room %d datagrams were forgotten (%d known, of these %d early, %d waiting, %d lost) and %d held fragments dropped\n",
			evicted, f.EvictedKnown, f.EvictedYoung, f.EvictedWaiting, f.EvictedLost, f.HeldEvicted)
	}
	if t := q.Tier; t != (v1.TierCounters{}) {
		fmt.Fprintf(table, "tier: %d fragments sent to other balancers, %d came back\n", t.Sent, t.Returned)
	}
}

// keptFlows writes which flows outlive the process.
func keptFlows(w io.Writer, k *v1.KeptFlows) {
	switch {
	case k.File == "":
		fmt.Fprintf(w, "flows end with the process: %s\n", cmp.Or(k.Why, "--flows-state names no file"))
		return
	case k.Why != "":
		fmt.Fprintf(w, "flows are kept in %s; those of the last process were not taken over: %s\n", k.File, k.Why)
	default:
		fmt.Fprintf(w, "flows are kept in %s; %d were taken over at the start", k.File, k.TookOver)
		for _, lost := range []struct {
			n    int
			text string
		}{{k.Expired, "had expired"}, {k.NotConfigured, "are not configured any more"}, {k.NoRoom, "found no room"}, {k.Damaged, "were damaged"}} {
			if lost.n > 0 {
				fmt.Fprintf(w, ", %d %s", lost.n, lost.text)
			}
		}
		fmt.Fprintln(w)
	}
	if k.Unkept > 0 {
		fmt.Fprintf(w, "%d changes of flows could not be kept: there was no memory\n", k.Unkept)
	}
}

// marked counts the packets that came to a queue with a mark.
func marked(q *v1.NFQueueStatus) (n uint64) {
	for i := range q.Queues {
		n += q.Queues[i].Marked
	}
	return n
}

// queuedTwice returns a warning when the queue's rule also takes packets that the fast path has marked; "" if it does not.
func queuedTwice(status *v1.LBStatus) string {
	if status.Fast == nil || !status.Fast.InUse || status.Queues == nil || marked(status.Queues) == 0 {
		return ""
	}
	return fmt.Sprintf("%d packets with a mark were queued all the same, which makes the fast path idle: let the rules leave them alone (weir lb rules --unmarked)\n",
		marked(status.Queues))
}

// kernel writes what the kernel data path adds.
func kernel(table io.Writer, k *v1.EBPFStatus) {
	took := ""
	if k.TookOver {
		took = ", took over the tables of an earlier run"
	}
	fmt.Fprintf(table, "\npins %s%s\nINTERFACE\tHOOK\tBECAUSE\n", cmp.Or(k.Pins, "none"), took)
	for _, i := range k.Interfaces {
		why := i.Why
		if i.Gone {
			why = "NOT ATTACHED: the interface is gone; " + why
		}
		if len(i.Others) > 0 {
			why += "; other programs there: " + strings.Join(i.Others, ", ")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", i.Name, i.Hook, why)
	}
	fmt.Fprintln(table, "\nTABLE\tUSED\tALLOCATED\tCONFIGURED")
	for _, t := range k.Tables {
		configured := "-"
		if t.Configured > 0 {
			configured = strconv.Itoa(t.Configured)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", t.Name, t.Used, t.Size, configured)
		if t.Name == "flows" {
			fmt.Fprintf(table, "  proven\t%d\n", t.Proven)
		}
	}
	if ipip, gue := k.Decapsulated["ipip"], k.Decapsulated["gue"]; ipip.Packets+gue.Packets > 0 {
		fmt.Fprintf(table, "\nTunnels that ended here: %d packets IP-in-IP, %d GUE.\n", ipip.Packets, gue.Packets)
	}
	if k.FlowsEvicted+k.FlowsDisplaced > 0 {
		fmt.Fprintf(table, "\nThe flow table was full: %d unproven flows made room for new ones, %d proven ones for packets whose CID names a live owner.\n",
			k.FlowsEvicted, k.FlowsDisplaced)
	}
	if len(k.NextHops) > 0 {
		fmt.Fprintln(table, "\nNEXT HOP OF\tADDRESS\tSTATE\tINTERFACE\tLINK ADDRESS\tMTU")
	}
	for _, h := range k.NextHops {
		fmt.Fprintf(table, "%s/%s\t%s\t%s\t%s\t%s\t%d\n", h.Service, h.Backend, h.Address, h.State, cmp.Or(h.Interface, "-"), cmp.Or(h.Link, "-"), h.MTU)
	}
}
