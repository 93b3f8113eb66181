package bench

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// kindLosses is the kind of the result that says where packets were lost; its figures are named PLACE: WHAT.
const kindLosses = "losses"

// Whose losses are, at the end of a figure's name.
const (
	lossOfGenerator = " (generator)"
	lossOfWeir      = " (weir)"
	lossOfNetwork   = " (network)"
	lossOfOthers    = " (generator, or other programs of the host)"
)

// What became of the datagrams of all TURN clients, stage by stage: it shows on which side of the gateway some were lost.
const (
	lossTurnSent     = "TURN datagrams: 1. sent by the clients"
	lossTurnPassed   = "TURN datagrams: 2. passed on by the gateway, and what opened the ways"
	lossTurnReceived = "TURN datagrams: 3. received by the sink"
)

// soakLosses is what kernel and processes count as lost, by figure name. Their counters only grow.
type soakLosses map[string]float64

// lossesNow reads every counter. What cannot be read now is left out: a process that has ended has none.
func (s *soak) lossesNow(ctx context.Context) (soakLosses, error) {
	l := soakLosses{}
	n := &s.network
	hosts := map[string]*netlab.Host{"clients": n.clients, "balancer": n.balancer, "server": n.server}
	if n.clients == nil {
		hosts = map[string]*netlab.Host{"host": nil}
	}
	for name, host := range hosts {
		if err := s.addKernelLosses(l, name, host); err != nil {
			return nil, err
		}
	}
	for _, w := range s.watched {
		if w.alone || w.failure() != nil {
			continue
		}
		if text, err := w.daemon.Do(ctx, http.MethodGet, "/metrics", ""); err == nil {
			l.addCounters(w.name, text)
		}
	}
	return l, nil
}

// addKernelLosses adds those of one namespace. All sockets of "balancer" are Weir's; in "server" and on the host those of
// Weir's known ports.
func (s *soak) addKernelLosses(l soakLosses, name string, host *netlab.Host) error {
	kernel, err := readNetLosses(host)
	if err != nil {
		return err
	}
	ours := kernel[lossBuffer]
	if name == "server" || name == "host" {
		if ours, err = readSocketDrops(host, s.network.weirPorts()); err != nil {
			return err
		}
	}
	for place, n := range kernel {
		whose := lossOfNetwork
		switch {
		case place == lossBuffer:
			n -= min(n, ours)
			whose = lossOfGenerator
			l[name+": "+place+lossOfWeir] += float64(min(ours, kernel[place]))
		case place == lossSend && name == "balancer":
			whose = lossOfWeir
		}
		if name == "host" {
			whose = lossOfOthers
		}
		l[name+": "+place+whose] += float64(n)
	}
	return nil
}

// weirPorts are where Weir's processes listen.
func (n *soakNetwork) weirPorts() (ports []uint16) {
	for _, at := range n.nodes {
		ports = append(ports, at.Port())
	}
	return append(ports, n.coap.Port(), n.udp.Port(), n.turn.Port())
}

// readSocketDrops sums up what the UDP sockets of some ports of a namespace have dropped since they were opened.
func readSocketDrops(host *netlab.Host, ports []uint16) (sum uint64, err error) {
	err = within(host, func() error {
		for _, name := range []string{"udp", "udp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + name)
			if os.IsNotExist(err) { // no IPv6
				continue
			}
			if err != nil {
				return fmt.Errorf("drops of sockets: %w", err)
			}
			sum += socketDrops(string(text), ports)
		}
		return nil
	})
	return sum, err
}

// socketDrops reads lines of: number, local address and port in hexadecimal, ..., drops.
func socketDrops(text string, ports []uint16) (sum uint64) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 13 {
			continue
		}
		_, port, _ := strings.Cut(fields[1], ":")
		number, err := strconv.ParseUint(port, 16, 16)
		drops, wrong := strconv.ParseUint(fields[len(fields)-1], 10, 64)
		if err == nil && wrong == nil && slices.Contains(ports, uint16(number)) {
			sum += drops
		}
	}
	return sum
}

// lossCounter matches the metrics of Weir that count what was refused, dropped or given up; ordinaryReason the reasons of
// packets that were forwarded or are no service's.
var (
	lossCounter    = regexp.MustCompile(`^weir_.*(drop|refus|evict|displaced|_full|overflow|failed|error|exhaust|withheld|unknown|bad_|malformed|truncated|forgotten|timeouts|undecided|wrong_routed|abandoned|queue)`)
	ordinaryReason = regexp.MustCompile(`reason="(fragment|cid|cid_unknown|conntrack|maglev|reply|icmp_error|icmp_reply|icmp_unknown|echo|outbound|tier|fragment_early|ok|challenged|stale_nonce|deleted|expired|not_service|not_ip|not_steered|no_neighbour)"`)
)

// addCounters adds what a process says of itself.
func (l soakLosses) addCounters(process string, text []byte) {
	for name, value := range metricSums(text) {
		family, labels, _ := strings.Cut(name, "{")
		reason := (family == "weir_packets_total" || family == "weir_turn_listener_reasons_total") && labels != "" && !ordinaryReason.MatchString(labels)
		if reason || family == name && strings.HasSuffix(family, "_total") && lossCounter.MatchString(family) {
			l[process+": "+name+lossOfWeir] = value
		}
		if family == "weir_turn_cluster_packets_total" && strings.Contains(labels, `direction="up"`) {
			l[lossTurnPassed] += value
		}
	}
}

// lossResult says where packets were lost during the run, and what of that the loads noticed.
func (s *soak) lossResult(places soakLosses, counted []soakCounts, elapsed time.Duration) *measure.Result {
	r := s.result("losses", kindLosses, elapsed)
	for _, c := range counted {
		r.Errors += c.lost
		for _, f := range c.figures {
			switch f.Name {
			case figureDatagrams:
				places[lossTurnSent] += f.Value
				places[lossTurnReceived] += f.Value
			case figureDatagramsLost:
				places[lossTurnReceived] -= f.Value
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		r.Figures = append(r.Figures, measure.Figure{Name: name, Value: places[name]})
	}
	return r
}
