package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// Places where a network namespace loses packets, as they are shown.
const (
	lossBuffer   = "full UDP receive buffers"
	lossSend     = "full UDP send buffers"
	lossNoPort   = "UDP without a listener"
	lossChecksum = "UDP checksums"
	lossIP       = "IP discards"
	lossLink     = "full rings of a link"
)

// netLosses is how many packets a namespace has lost in each of its places.
type netLosses map[string]uint64

// readNetLosses reads the kernel's counters of a namespace, nil: of ours. They count since it was made.
func readNetLosses(host *netlab.Host) (l netLosses, err error) {
	l = netLosses{}
	err = within(host, func() error {
		// The old file has a line of names and one of values for each protocol, that of IPv6 a pair on each line. Under
		// thread-self they are those of the namespace that this thread is in.
		for _, name := range []string{"snmp", "snmp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + name)
			if os.IsNotExist(err) { // no IPv6
				continue
			}
			if err != nil {
				return fmt.Errorf("count lost packets: %w", err)
			}
			l.addSNMP(string(text))
		}
		text, err := os.ReadFile("/proc/thread-self/net/dev")
		if err != nil {
			return fmt.Errorf("count lost packets: %w", err)
		}
		l.addLinks(string(text))
		return nil
	})
	return l, err
}

// addSNMP adds what /proc/net/snmp or /proc/net/snmp6 counts.
func (l netLosses) addSNMP(text string) {
	places := map[string]string{
		"Udp:RcvbufErrors": lossBuffer, "Udp6RcvbufErrors": lossBuffer, "Udp:SndbufErrors": lossSend, "Udp6SndbufErrors": lossSend,
		"Udp:NoPorts": lossNoPort, "Udp6NoPorts": lossNoPort, "Udp:InCsumErrors": lossChecksum, "Udp6InCsumErrors": lossChecksum,
		"Ip:InDiscards": lossIP, "Ip:OutDiscards": lossIP, "Ip6InDiscards": lossIP, "Ip6OutDiscards": lossIP,
	}
	names := map[string][]string{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if !strings.HasSuffix(fields[0], ":") {
			l.add(places[fields[0]], fields[1])
			continue
		}
		known := names[fields[0]]
		names[fields[0]] = fields
		for i := 1; i < min(len(known), len(fields)); i++ {
			l.add(places[fields[0]+known[i]], fields[i])
		}
	}
}

// addLinks adds what /proc/net/dev counts as dropped: a veth whose other end does not keep up.
func (l netLosses) addLinks(text string) {
	const received, sent = 3, 11 // columns
	for line := range strings.Lines(text) {
		_, counters, ok := strings.Cut(line, ":")
		fields := strings.Fields(counters)
		if ok && len(fields) > sent {
			l.add(lossLink, fields[received])
			l.add(lossLink, fields[sent])
		}
	}
}

func (l netLosses) add(place, value string) {
	if n, err := strconv.ParseUint(value, 10, 64); err == nil && place != "" {
		l[place] += n
	}
}

// since is what was lost in each place since an earlier look.
func since[L ~map[string]N, N uint64 | float64](before, now L) L {
	d := L{}
	for place, n := range now {
		if n > before[place] {
			d[place] = n - before[place]
		}
	}
	return d
}
