package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// NFQueueConfig says what of the scenario nfqueue to measure.
type NFQueueConfig struct {
	GridConfig           // Duration: whole tenths of a second, 0.1 s to 60 s; Families: empty: ipv4. The path direct is always measured
	With       []string  // peers to compare with in the same run, of NFQueuePeers
	Offloads   []string  // on, off; empty: both
	Bandwidths []float64 // of the load udp, bit/s of payload; empty: 2 and 4 Gbit/s
	Fragmented []int     // of the load fragments, datagrams a second; empty: 15,000 and 40,000
}

// NFQueueOffloads names the settings of the interfaces in the order they are measured.
func NFQueueOffloads() []string { return []string{"on", "off"} }

// Validate says what cannot be meant.
func (c *NFQueueConfig) Validate() error {
	if c.Duration < time.Second/10 || c.Duration > time.Minute || c.Duration%(time.Second/10) != 0 {
		return fmt.Errorf("%v for each load: want 0.1 to 60 seconds, in whole tenths", c.Duration)
	}
	for _, bandwidth := range c.Bandwidths {
		if !(bandwidth >= 1e6 && bandwidth <= 1e12) {
			return fmt.Errorf("bandwidth %v bit/s: want 1M to 1000G", bandwidth)
		}
	}
	for _, rate := range c.Fragmented {
		if rate < 1 || rate > 10_000_000 {
			return fmt.Errorf("%d fragmented datagrams a second: want 1 to 10000000", rate)
		}
	}
	ours := slices.DeleteFunc(nfqPaths(), func(p *path) bool { return p.nfq.of != "" })
	defaults := NFQueueConfig{}
	defaults.setDefaults()
	return errors.Join(c.validate(ours, defaults.loads()), knownNames("offload", c.Offloads, NFQueueOffloads()), checkPeers(c.With, NFQueuePeers()...))
}

func (c *NFQueueConfig) setDefaults() {
	if len(c.Families) == 0 {
		c.Families = []string{"ipv4"}
	}
	if len(c.Offloads) == 0 {
		c.Offloads = NFQueueOffloads()
	}
	if len(c.Bandwidths) == 0 {
		c.Bandwidths = []float64{2e9, 4e9}
	}
	if len(c.Fragmented) == 0 {
		c.Fragmented = []int{15000, 40000}
	}
}

// NFQueue measures each load over each path through netfilter queues, and returns one result for each pair, family and setting of
// the offloads. What fails, or is not there, is a result that says so. When ctx ends nothing is returned. Nothing is left
// behind either way.
func NFQueue(ctx context.Context, config NFQueueConfig) ([]*measure.Result, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return nfqGrid(config).run(ctx)
}

// nfqGrid chooses the networks and cells that were requested.
func nfqGrid(c NFQueueConfig) *grid {
	c.setDefaults()
	g := &grid{config: c.GridConfig, scenario: scenarioNFQueue, running: programs.NewGroup()}
	g.running.Swift = true
	g.found, g.figures = nfqFound, nfqFigures
	g.complete = func(c *cell, result *measure.Result) { nfqComplete(g, c, result) }
	networks := map[string]*path{}
	// All paths of one load and setting follow each other: what is compared lies close in time.
	for _, l := range c.loads() {
		if !wanted(c.Loads, l.kind) {
			continue
		}
		for _, offload := range NFQueueOffloads() {
			if !wanted(c.Offloads, offload) || l.nfq.datagrams && offload != c.Offloads[len(c.Offloads)-1] {
				continue // segmentation offload is no matter of datagrams: once is enough
			}
			for _, family := range Families() {
				if !wanted(c.Families, family) {
					continue
				}
				for _, p := range nfqPaths() {
					if !p.nfq.wanted(p.name, &c) || p.nfq.spread && !l.nfq.spread {
						continue
					}
					p.inNetwork(offload, l.nfq.twoHops)
					if networks[p.title()] == nil {
						networks[p.title()] = p
						g.paths = append(g.paths, p)
					}
					g.cells = append(g.cells, &cell{path: networks[p.title()], load: l, family: family})
				}
			}
		}
	}
	return g
}
