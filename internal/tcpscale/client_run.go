package tcpscale

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"
)

// ClientRun is a client from its start to its end: workers planned and started, ramped, held, stopped.
type ClientRun struct {
	Launcher Launcher             // of its workers
	Config   ClientConfig         // of all workers together; Run is drawn
	Workers  int                  // 0: as many as the open-file limit requires
	Replicas int                  // clients as [ReplicaWorkers] makes them; 0: one
	For      time.Duration        // as in [Hold]
	Late     func() time.Duration // as in [Hold]
	Plateau  time.Duration        // as Quiet in [Finder]
	Server   func() Report        // the other end, where it is known; nil otherwise
	Tick     func(Report)         // the sum of all replicas, every second and at the end; may be nil
	Each     func([]Report)       // the reports that Tick's is the sum of, one of each replica; may be nil
	Started  func(*Group)         // is given the workers once all are ready; may be nil
}

// Run returns the final report, and an error if workers could not start or ended.
func (c *ClientRun) Run(ctx context.Context) (Report, error) {
	files, err := RaiseFiles()
	if err != nil {
		return Report{}, err
	}
	workers := c.Workers
	if workers == 0 {
		workers = WorkersFor(c.Config.Connections, files)
	}
	c.Config.Run = rand.Uint64()
	var ports int
	if err := c.Launcher.do(func() (err error) { ports, err = c.Config.sourcePorts(); return err }); err != nil {
		return Report{}, err
	}
	configs, err := ReplicaWorkers(c.Config, max(c.Replicas, 1), workers, ports)
	if err != nil {
		return Report{}, err
	}
	group, err := StartGroup(c.Launcher, configs)
	if err != nil {
		return Report{}, err
	}
	defer group.Kill()
	if c.Started != nil {
		c.Started(group)
	}
	hold := Hold{
		Group: group, Workers: len(configs), Rate: configs[0].Client.Rate * RampingWorkers, For: c.For, Late: c.Late, Server: c.Server,
		Finder: Finder{Quiet: c.Plateau, Files: files, Workers: len(configs), Ports: ports, Tuples: tuples(configs)},
	}
	var last Report
	hold.Tick = func(r Report) {
		each := []Report{r}
		if c.Replicas > 1 {
			each = c.replicas(group, workers, &r)
		}
		if last = r; c.Tick != nil {
			c.Tick(r)
		}
		if c.Each != nil {
			c.Each(each)
		}
	}
	_, err = hold.Run(ctx)
	return last, err // Hold ticks at the end, too
}

// tuples is how many pairs of source and target all workers have together.
func tuples(configs []WorkerConfig) int {
	type pair struct {
		source netip.Addr
		target netip.AddrPort
	}
	pairs := map[pair]bool{}
	for _, c := range configs {
		sources := c.Client.Sources
		if len(sources) == 0 {
			sources = []netip.Addr{{}} // the kernel's choice
		}
		for _, s := range sources {
			for _, t := range c.Client.Targets {
				pairs[pair{s, t}] = true
			}
		}
	}
	return len(pairs)
}
