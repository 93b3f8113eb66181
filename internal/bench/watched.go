package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// Gauges of a process that is watched, besides its tables.
const (
	gaugeResident    = "resident memory"
	gaugeHeap        = "heap"
	gaugeGoroutines  = "goroutines"
	gaugeThreads     = "threads"
	gaugeDescriptors = "descriptors"
)

// watchedGauges are in the order in which they are shown.
func watchedGauges() []string {
	return []string{gaugeResident, gaugeHeap, gaugeGoroutines, gaugeThreads, gaugeDescriptors}
}

// watched is a process whose gauges are sampled.
type watched struct {
	name   string
	daemon *programs.Daemon
	tables []string // metrics: how full its tables are
	alone  bool     // it has no metrics of its own
	child  func(context.Context, *programs.Daemon) (int, error)
	gauges map[string]*measure.Series
	usage  procstat.Usage // the last
	first  time.Duration  // processor time at the first sample
	missed int            // samples that could not be taken
}

func newWatched(name string, daemon *programs.Daemon, tables []string) *watched {
	return &watched{name: name, daemon: daemon, tables: tables, gauges: map[string]*measure.Series{}}
}

// failure is why the process ended before its time, nil while it runs.
func (w *watched) failure() error {
	if w.daemon == nil {
		return nil
	}
	return w.daemon.Failure()
}

// sample reads all of its gauges once. What cannot be read now is left out.
func (w *watched) sample(ctx context.Context, at time.Duration) {
	pid := w.daemon.PID()
	if w.child != nil {
		id, err := w.child(ctx, w.daemon)
		if err != nil {
			w.missed++
			return
		}
		pid = id
	}
	usage, err := procstat.Of(pid)
	if err != nil {
		w.missed++
		return
	}
	if w.usage.CPU == 0 {
		w.first = usage.CPU
	}
	w.usage = usage
	w.add(gaugeResident, "bytes", at, float64(usage.ResidentBytes))
	w.add(gaugeThreads, "", at, float64(usage.Threads))
	if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
		w.add(gaugeDescriptors, "", at, float64(len(files)))
	}
	if w.alone {
		return
	}
	metrics, err := w.daemon.Metrics(ctx)
	if err != nil {
		w.missed++
		return
	}
	w.add(gaugeHeap, "bytes", at, metrics["go_memstats_heap_inuse_bytes"])
	w.add(gaugeGoroutines, "", at, metrics["go_goroutines"])
	for _, table := range w.tables {
		w.add(tableName(table), "", at, metrics[table])
	}
}

// tableName is the value of a metric's last label, or a metric without what is clear from where it stands.
func tableName(metric string) string {
	if at := strings.LastIndex(metric, `="`); at >= 0 {
		return strings.TrimSuffix(metric[at+2:], `"}`)
	}
	return strings.TrimPrefix(metric, "weir_")
}

func (w *watched) add(name, unit string, at time.Duration, value float64) {
	series := w.gauges[name]
	if series == nil {
		series = &measure.Series{Name: name, Unit: unit}
		w.gauges[name] = series
	}
	series.At = append(series.At, at.Seconds())
	series.Values = append(series.Values, value)
}
