package tcpscale

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
)

// WorkersFor is how many processes hold n connections with that limit of open files.
func WorkersFor(n int, files uint64) int {
	each := 1
	if files > reserveFiles+1 {
		each = int(files - reserveFiles)
	}
	return max(1, (n+each-1)/each)
}

// ephemeralRange is what the kernel chooses source ports from.
func ephemeralRange() (low, high int) {
	low, high = 32768, 60999
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(text), &low, &high) // the default stays where it does not say
	}
	return low, max(low, high)
}

// sourcePorts is how many ports a pair of source and target has.
func (c *ClientConfig) sourcePorts() (int, error) {
	low, high := ephemeralRange()
	if c.PortLow == 0 {
		return high - low + 1, nil
	}
	if int(c.PortLow) < low || int(c.PortHigh) > high { // the kernel would take its own range instead, and not say so
		return 0, fmt.Errorf("source ports %d-%d: not within net.ipv4.ip_local_port_range, %d-%d; first: sysctl -w net.ipv4.ip_local_port_range='%d %d'",
			c.PortLow, c.PortHigh, low, high, min(low, int(c.PortLow)), max(high, int(c.PortHigh)))
	}
	return int(c.PortHigh) - int(c.PortLow) + 1, nil
}

// portRange is what each socket names as its range of source ports, the kernel's own too: a connect then takes the next port of
// either parity (since Linux 6.8). It walks past all even ones first otherwise, 14,116 of them once these are taken.
func (c *ClientConfig) portRange() int {
	low, high := int(c.PortLow), int(c.PortHigh)
	if low == 0 {
		low, high = ephemeralRange()
	}
	return low | high<<16
}

// RampingWorkers is how many workers of a client ramp at once: more only get in each other's way.
const RampingWorkers = 6

// ServerWorkers spreads a server over workers: all listen on the same addresses, or apart.
func ServerWorkers(base ServerConfig, workers int) []WorkerConfig {
	configs := make([]WorkerConfig, workers)
	for i := range configs {
		c := base
		c.Worker = i
		if c.Apart {
			at := i % len(base.Listen)
			c.Listen = base.Listen[at : at+1]
		}
		configs[i].Server = &c
	}
	return configs
}

// ClientWorkers spreads a client over workers: connections evenly, sources in turn. Where no one has named sources, the
// targets are on loopback, and one source has too few ports, each worker gets addresses of 127.0.0.0/8 of its own, or of
// its own towards its target where workers are apart: the same addresses again are less for the kernel to look through.
// Workers beyond the first six wait for an OpRamp; the rate is that of all.
func ClientWorkers(base ClientConfig, workers, ports int) ([]WorkerConfig, error) {
	if workers < 1 || workers > base.Connections {
		return nil, fmt.Errorf("%d workers for %d connections", workers, base.Connections)
	}
	each := (base.Connections + workers - 1) / workers
	// Before Linux 6.8 a connect looks through the ports of one parity first: once half of a range is taken, each walks past that half.
	enough := ports * 4 / 10 * len(base.Targets)
	crowd := base.Connections
	if base.Apart { // then the ranges towards a target are shared only by the workers of that target
		enough = ports * 4 / 10
		crowd = each * ((workers + len(base.Targets) - 1) / len(base.Targets))
	}
	own := 0
	if len(base.Sources) == 0 && crowd > enough && allLoopback4(base.Targets) {
		own = (each + enough - 1) / enough
	}
	configs := make([]WorkerConfig, workers)
	for i := range configs {
		c := base
		c.Worker, c.Client = i, uint32(i)
		c.Connections = base.Connections*(i+1)/workers - base.Connections*i/workers
		c.Rate = base.Rate / float64(min(workers, RampingWorkers))
		c.Churn = base.Churn / float64(workers)
		c.Wait = i >= RampingWorkers
		turn := i // among those with the same targets
		if c.Apart {
			at := i % len(base.Targets)
			c.Targets, turn = base.Targets[at:at+1], i/len(base.Targets)
		}
		switch {
		case own > 0:
			for j := range own {
				n := turn*own + j
				c.Sources = append(c.Sources, netip.AddrFrom4([4]byte{127, byte(64 + n/62500), byte(n / 250 % 250), byte(1 + n%250)}))
			}
		case len(base.Sources) >= workers:
			c.Sources = nil
			for j := i; j < len(base.Sources); j += workers {
				c.Sources = append(c.Sources, base.Sources[j])
			}
		}
		configs[i].Client = &c
	}
	return configs, nil
}

func allLoopback4(targets []netip.AddrPort) bool {
	for _, t := range targets {
		if a := t.Addr().Unmap(); !a.Is4() || !a.IsLoopback() {
			return false
		}
	}
	return true
}

// MaxSources bounds the source addresses of a client.
const MaxSources = 4096

// Sources are the addresses of prefixes, without the network's own and the broadcast address of an IPv4 network.
func Sources(prefixes []netip.Prefix) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, p := range prefixes {
		p = p.Masked()
		network := p.Addr().BitLen()-p.Bits() >= 2
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			if next := a.Next(); network && (a == p.Addr() || a.Is4() && !p.Contains(next)) {
				if next.IsValid() && p.Contains(next) {
					continue
				}
				break
			}
			if len(all) == MaxSources {
				return nil, fmt.Errorf("%v: more than %d sources", p, MaxSources)
			}
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no source address")
	}
	return all, nil
}
