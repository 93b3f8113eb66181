package admin

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/control/history"
	"github.com/weir-lb/weir/internal/metrics"
)

// observed adds what a page shows in addition to the status.
func (s *Server) observed(r routes) {
	if s.config.Events != nil {
		r.guard("GET /events", maxBody, s.events)
	}
	if s.history != nil {
		r.guard("GET /history", maxBody, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.history.History()) })
	}
}

// events answers GET /events.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	var after uint64
	if text := r.FormValue("after"); text != "" {
		var err error
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			writeError(w, http.StatusBadRequest, fmt.Errorf("after %q: write the number of an event", text))
			return
		}
	}
	writeJSON(w, http.StatusOK, s.config.Events(after))
}

// record takes a point of the history now and at each step, until ctx ends.
func (s *Server) record(ctx context.Context) {
	ticker := time.NewTicker(history.Step)
	defer ticker.Stop()
	for now := time.Now(); ; {
		s.history.Take(now, append(s.config.Metrics(), metrics.Of(processUse())...))
		select {
		case <-ctx.Done():
			return
		case now = <-ticker.C:
		}
	}
}

// process is what the history has of every process.
type process struct {
	CPU    time.Duration `metric:"process_cpu_seconds_total" help:"CPU time of the process."`
	Memory uint64        `metric:"process_resident_memory_bytes" help:"Memory of the process."`
}

func processPlots() []history.Plot {
	return []history.Plot{
		{Title: "CPU of the process", Unit: "percent", Rate: true, Lines: []history.Source{{Metric: "process_cpu_seconds_total", Name: "of one core", Scale: 100}}},
		{Title: "Memory of the process", Unit: "bytes", Lines: []history.Source{{Metric: "process_resident_memory_bytes", Name: "resident"}}},
	}
}

func processUse() (p process) {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		p.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(text); len(fields) > 1 {
			pages, _ := strconv.ParseUint(string(fields[1]), 10, 64) // 0: unknown
			p.Memory = pages * uint64(os.Getpagesize())
		}
	}
	return p
}
