package lb

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/datapath/fastpath"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/privilege"
)

// How --fast is meant.
const (
	fastAuto = "auto"
	fastOn   = "on"
	fastOff  = "off"
)

// withFast puts the fast path in front of an opened queue, according to --fast.
func withFast(mode string, queue *nfqueue.Datapath, kernel *ebpfFlags, log *slog.Logger) (*fastpath.Datapath, error) {
	config := fastpath.Config{Must: mode == fastOn, Log: log, End: func() error { return pins.End(kernel.frontPins(), log) }}
	if mode == fastOff {
		config.Never = "--fast off"
		return fastpath.New(queue, config), nil
	}
	var err error
	if config.Program, config.Never, err = fastConfig(kernel, log); err == nil && config.Must && config.Never != "" {
		err = errors.New(config.Never)
	}
	if err != nil {
		return nil, cli.UsageError(fmt.Errorf("--fast %s: %w", mode, err))
	}
	return fastpath.New(queue, config), nil
}

// frontPins is where the program of the fast path is kept.
func (f *ebpfFlags) frontPins() string {
	if f.pinPath == pins.DefaultPath {
		return pins.DefaultFrontPath
	}
	return f.pinPath
}

// fastConfig reads the flags that the fast path shares with the kernel data path. why is the reason not to use the fast
// path.
func fastConfig(kernel *ebpfFlags, log *slog.Logger) (config ebpf.Config, why string, err error) {
	if len(kernel.interfaces) == 0 {
		return config, "no interface is named; name those that clients' packets come in on by --interface", nil
	}
	if config, err = kernel.config(log); err != nil {
		return config, "", err
	}
	if config.Hook == attach.HookXDP {
		return config, "--hook xdp: marks need the TCX hook", nil
	}
	if err := privilege.Check(privilege.LBRunFast); err != nil {
		return config, err.Error(), nil
	}
	config.Hook, config.Front, config.PinPath = attach.HookTCX, true, kernel.frontPins()
	return config, "", nil
}

// statusOfFast returns the status of the fast path, with that of its program if it is in use.
func statusOfFast(d *fastpath.Datapath) (status *v1.FastPathStatus, kernel *v1.EBPFStatus) {
	d.Program(func(program *ebpf.Datapath) {
		kernel = &v1.EBPFStatus{EBPFReport: program.Report(), EBPFCounters: countersText(program.Counters())}
	})
	if kernel != nil {
		return &v1.FastPathStatus{InUse: true}, kernel
	}
	_, why := d.Status()
	return &v1.FastPathStatus{Why: why}, nil
}

func fastFlows(d *fastpath.Datapath, yield func(v1.Flow) bool) {
	d.Program(func(program *ebpf.Datapath) {
		program.Flows(func(flow ebpf.Flow) bool { return yield(ebpfFlow(&flow)) })
	})
}

// fastSamples returns the program's metrics, which have the label of the data path ebpf.
func fastSamples(d *fastpath.Datapath) []metrics.Sample {
	var status v1.FastPathStatus
	var samples []metrics.Sample
	d.Program(func(program *ebpf.Datapath) {
		status.InUse = true
		samples = ebpfSamples(program)
	})
	return append(samples, metrics.Of(status)...)
}
