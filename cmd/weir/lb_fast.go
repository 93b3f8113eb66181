package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// How --fast is meant.
const (
	fastAuto = "auto"
	fastOn   = "on"
	fastOff  = "off"
)

// fastRoad is the queue data path with the kernel's TCX program before it, both under the same snapshot: what the program
// decides leaves with its mark and is not queued. It takes every snapshot that the queue takes; one that the program
// cannot do all of is the queue's alone, or with --fast on refused.
type fastRoad struct {
	queue  *nfqueue.Datapath
	config ebpf.Config
	must   bool   // --fast on
	never  string // why there will be no program; "" if there may be one
	log    *slog.Logger

	mu       sync.Mutex
	program  *ebpf.Datapath // nil: not in use
	why      string         // why not
	snapshot *lb.Snapshot
	running  context.Context //nolint:containedctx // that of Run: programs come and go with snapshots
	cancel   context.CancelFunc
	ended    chan struct{} // of the program's Run
	broken   chan error    // capacity 1: the program's Run, where it must not end
}

// fastStatus is what the fast road adds to /status.
type fastStatus struct {
	InUse bool   `json:"in_use"`
	Why   string `json:"why,omitempty"` // why not
}

// fastConfig reads the flags that the fast road shares with the kernel data path. why says what speaks against it.
func fastConfig(kernel *ebpfFlags, log *slog.Logger) (config ebpf.Config, why string, err error) {
	if len(kernel.interfaces) == 0 {
		return config, "no interface is named; name those that clients' packets come in on by --interface", nil
	}
	if config, err = kernel.config(log); err != nil {
		return config, "", err
	}
	if config.Hook == ebpf.HookXDP {
		return config, "--hook xdp: marks need the TCX hook", nil
	}
	if err := privilege.Check(privilege.LBRunFast); err != nil {
		return config, err.Error(), nil
	}
	config.Hook, config.Front, config.PinPath = ebpf.HookTCX, true, ""
	return config, "", nil
}

// Caps are the queue's: it takes what the program leaves.
func (f *fastRoad) Caps() lb.Caps { return f.queue.Caps() }

// Apply gives the snapshot to the queue, then to the program. An error leaves both with the last one.
func (f *fastRoad) Apply(s *lb.Snapshot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	why := cmp.Or(f.never, fastRefusal(s))
	if why != "" && f.must {
		return fmt.Errorf("--fast on: %s; take that out of the configuration, or use --fast auto", why)
	}
	if err := f.queue.Apply(s); err != nil {
		return err
	}
	if why == "" {
		if err := f.applyLocked(s); err == nil {
			f.snapshot = s
			return nil
		} else if f.must {
			if f.snapshot != nil {
				err = errors.Join(err, f.queue.Apply(f.snapshot))
			}
			return fmt.Errorf("--fast on: %w", err)
		} else {
			why = err.Error()
		}
	}
	f.snapshot = s
	return f.dropLocked(why)
}

// applyLocked puts the snapshot into the program, and the program to work where it is not.
func (f *fastRoad) applyLocked(s *lb.Snapshot) error {
	if f.program != nil {
		return f.program.Apply(s)
	}
	program, err := ebpf.Open(f.config)
	if err != nil {
		return err
	}
	if err := program.Apply(s); err != nil {
		return errors.Join(err, program.Close())
	}
	f.program, f.why = program, ""
	if f.running != nil {
		f.runLocked()
	}
	f.log.Info("fast road: the TCX program marks what it can, the queue gets the rest", "interfaces", f.config.Interfaces)
	return nil
}

// dropLocked leaves everything to the queue.
func (f *fastRoad) dropLocked(why string) error {
	if why != f.why {
		f.log.Info("no fast road: every packet goes to the queue", "why", why)
	}
	f.why = why
	return f.endLocked()
}

func (f *fastRoad) endLocked() error {
	if f.program == nil {
		return nil
	}
	if f.cancel != nil {
		f.cancel()
		<-f.ended
		f.cancel = nil
	}
	err := f.program.Close()
	f.program = nil
	return err
}

// runLocked keeps the program's tables in order until it is dropped or Run's context ends.
func (f *fastRoad) runLocked() {
	ctx, cancel := context.WithCancel(f.running)
	program, ended := f.program, make(chan struct{})
	f.cancel, f.ended = cancel, ended
	go func() {
		defer close(ended)
		if err := program.Run(ctx); err != nil && ctx.Err() == nil {
			select {
			case f.broken <- fmt.Errorf("fast road: %w", err):
			default: // one is enough
			}
		}
	}()
}

// Run carries packets until ctx ends or one of the two cannot go on.
func (f *fastRoad) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	f.running = ctx
	if f.program != nil {
		f.runLocked()
	}
	f.mu.Unlock()
	queue := make(chan error, 1)
	go func() { queue <- f.queue.Run(ctx) }()
	var err error
	select {
	case err = <-queue:
		cancel()
	case err = <-f.broken:
		cancel()
		err = errors.Join(err, <-queue)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancel != nil {
		f.cancel()
		<-f.ended
		f.cancel = nil
	}
	f.running = nil
	return err
}

// Close takes the program away first: a mark without anybody who decides the rest is worse than none.
func (f *fastRoad) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.endLocked(), f.queue.Close())
}

// status is the road, and its program's part if that is in use.
func (f *fastRoad) status() (*fastStatus, *kernelStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.program == nil {
		return &fastStatus{Why: f.why}, nil
	}
	return &fastStatus{InUse: true}, &kernelStatus{Report: f.program.Report(), kernelCounters: countersText(f.program.Counters())}
}

func (f *fastRoad) flows(yield func(admin.Flow) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.program != nil {
		f.program.Flows(func(flow ebpf.Flow) bool { return yield(ebpfFlow(&flow)) })
	}
}

// samples are the program's numbers, under names of their own: the queue has the same reasons and backends.
func (f *fastRoad) samples() []admin.Sample {
	f.mu.Lock()
	defer f.mu.Unlock()
	inUse := admin.Sample{Name: "weir_fast_road", Help: "1 while the TCX program marks what it can before the queue."}
	if f.program == nil {
		return []admin.Sample{inUse}
	}
	inUse.Value = 1
	samples := ebpfSamples(f.program.Counters(), f.program.Report())
	for i := range samples {
		samples[i].Name = "weir_fast_" + strings.TrimPrefix(samples[i].Name, "weir_")
		samples[i].Help = "Fast road: " + samples[i].Help
	}
	return append(samples, inUse)
}

// fastRefusal is why a snapshot is the queue's alone; "" if the program decides as the queue does.
func fastRefusal(s *lb.Snapshot) string {
	caps := ebpf.Caps(ebpf.HookTCX)
	switch {
	case len(s.Rules) > 0 || s.PromiscuousPing:
		return "flow rules are decided by the queue only"
	case s.Tier != nil:
		return "a tier of balancers is the queue's only"
	case s.Hash != lb.SipHash:
		return "the hash " + s.Hash.String() + " is the queue's only"
	case s.Limits.Flows > caps.MaxFlows:
		return fmt.Sprintf("limits.flows is %d; the program's table holds %d", s.Limits.Flows, caps.MaxFlows)
	}
	for _, service := range s.Services {
		if service.Stateless {
			return fmt.Sprintf("service %s does without conntrack; the program remembers flows", service.Name)
		}
		if service.CID != nil && len(service.CID.Layouts) > caps.MaxLayouts {
			return fmt.Sprintf("service %s has %d CID layouts; the program reads %d", service.Name, len(service.CID.Layouts), caps.MaxLayouts)
		}
		if service.CID != nil && slices.ContainsFunc(service.CID.Layouts, func(l cid.Layout) bool { return l.Mask != cid.MaskNone }) {
			return fmt.Sprintf("service %s hides node ids in its connection ids; only the queue reads them", service.Name)
		}
	}
	return ""
}

// withFast is the road before an opened queue, as --fast says.
func withFast(mode string, queue *nfqueue.Datapath, kernel *ebpfFlags, log *slog.Logger) (*fastRoad, error) {
	road := &fastRoad{queue: queue, must: mode == fastOn, log: log, broken: make(chan error, 1)}
	if mode == fastOff {
		road.never = "--fast off"
		return road, nil
	}
	var err error
	if road.config, road.never, err = fastConfig(kernel, log); err == nil && road.must && road.never != "" {
		err = errors.New(road.never)
	}
	if err != nil {
		return nil, usageError(fmt.Errorf("--fast %s: %w", mode, err))
	}
	return road, nil
}
