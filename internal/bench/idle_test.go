package bench

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// idleSamples are ten clients of which one is served each second since the crash, up to served.
func idleSamples(served int, handshakes uint64) (samples []v1.CoAPBenchSample) {
	for second := range 12 {
		samples = append(samples, v1.CoAPBenchSample{
			At: restartBegin.Add(time.Duration(second) * time.Second), Total: v1.CoAPBenchStats{Requests: uint64(min(second, served)), Rehandshakes: handshakes},
		})
	}
	return samples
}

// The result says when half, 99 % and all clients were served again; a client that is not, and a new session where it was to survive, miss the aim.
func TestIdleResult(t *testing.T) {
	config := &IdleConfig{Sessions: 30, Nodes: 3, Within: time.Second}
	resultOf := func(path idlePath, served int, handshakes uint64) *measure.Result {
		r := idleResult(config, path, restartBegin)
		fillIdle(r, path, restartBegin, 10, idleSamples(served, handshakes))
		return r
	}
	keeps, loses := idlePaths()[0], idlePaths()[1]
	for name, c := range map[string]struct {
		result  *measure.Result
		verdict string
		last    float64
	}{
		"kept":        {resultOf(keeps, 10, 0), verdictReached, 10},
		"made again":  {resultOf(loses, 10, 10), verdictReached, 10},
		"not kept":    {resultOf(keeps, 10, 1), verdictMissed, 10},
		"not all":     {resultOf(loses, 9, 9), verdictMissed, math.NaN()},
		"none at all": {resultOf(keeps, 0, 0), verdictMissed, math.NaN()},
	} {
		last := figureOf(c.result, figureIdleLast)
		if c.result.Parameters[paramVerdict] != c.verdict || last != c.last && !(math.IsNaN(last) && math.IsNaN(c.last)) {
			t.Errorf("%s: %v, the last after %g", name, c.result.Parameters, last)
		}
	}
	r := resultOf(keeps, 10, 0)
	if half, most := figureOf(r, figureIdleHalf), figureOf(r, figureIdleMost); half != 5 || most != 10 || figureOf(r, figureIdleSessions) != 30 {
		t.Errorf("half after %g, 99 %% after %g, %g sessions", half, most, figureOf(r, figureIdleSessions))
	}
	table, page := shown(t, []*measure.Result{r, resultOf(loses, 9, 9)})
	if !strings.Contains(table, "1 clients are not served again") || !strings.Contains(page, "clients served again since the crash") {
		t.Errorf("%s", table)
	}
}

func TestIdleConfig(t *testing.T) {
	good := IdleConfig{Sessions: 3, Nodes: 3, Within: time.Second}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*IdleConfig){
		"--sessions": func(c *IdleConfig) { c.Sessions = 2 }, "--nodes": func(c *IdleConfig) { c.Nodes = 1 }, "--within": func(c *IdleConfig) { c.Within = 0 },
		"--down": func(c *IdleConfig) { c.Down = -1 }, "at most 60000": func(c *IdleConfig) { c.Sessions = 200_000 }, `no path "disk"`: func(c *IdleConfig) { c.Paths = []string{"disk"} },
		"--replicate": func(c *IdleConfig) { c.Paths = []string{pathReplicated} },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %s", err, want)
		}
	}
	if paths := good.paths(); len(paths) != 2 {
		t.Errorf("without an etcd: %v", namesOf(paths))
	}
	if good.Etcd = "etcd"; len(good.paths()) != 3 {
		t.Errorf("with an etcd: %v", namesOf(good.paths()))
	}
}
