package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// generator is clients of a TURN server or of plain UDP, and their sink, as a process: `weir bench traffic turn`.
type generator struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	log     programs.LastLines
	running *programs.Group
}

// trafficPhase is the JSON of what the generator shall send.
type trafficPhase struct {
	Rate      float64       `json:"rate"` // datagrams a second of all the clients
	Duration  time.Duration `json:"duration_ns"`
	Size      int           `json:"size,omitempty"`
	Direction string        `json:"direction"`
	Silence   time.Duration `json:"silence_ns,omitempty"` // how long a datagram may be under way
}

// startGenerator starts one in a namespace, nil: in ours. Its clients have their allocations when it returns.
func startGenerator(ctx context.Context, running *programs.Group, host *netlab.Host, binary string, args ...string) (*generator, error) {
	g := &generator{cmd: exec.Command(binary, append([]string{"bench", "traffic", "turn"}, args...)...), running: running} //nolint:gosec // our own binary
	g.cmd.Stderr = &g.log
	in, err := g.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	g.in, g.out = in, bufio.NewScanner(out)
	g.out.Buffer(nil, 64<<20)
	if err := running.Start(host, g.cmd); err != nil {
		return nil, err
	}
	var ready struct{} // its first line says where the relays are
	if err := g.read(ctx, &ready); err != nil {
		g.end(false)
		return nil, err
	}
	return g, nil
}

// read waits for one line of the generator's. It is killed when ctx ends.
func (g *generator) read(ctx context.Context, into any) error {
	stop := context.AfterFunc(ctx, func() { _ = g.cmd.Process.Kill() })
	defer stop()
	more := g.out.Scan()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !more:
		_ = g.cmd.Wait() // all of its output is there then
		return fmt.Errorf("the generator ended%s", g.log.LastOutput())
	}
	return json.Unmarshal(g.out.Bytes(), into)
}

// phase sends for a while and returns the report.
func (g *generator) phase(ctx context.Context, p trafficPhase) (report v1.TurnLoadOf[measure.Latency], err error) {
	if err := json.NewEncoder(g.in).Encode(p); err != nil {
		return report, fmt.Errorf("the generator ended: %w%s", err, g.log.LastOutput())
	}
	return report, g.read(ctx, &report)
}

// end gives the allocations back, or abandons them.
func (g *generator) end(abandon bool) {
	if abandon {
		_ = g.cmd.Process.Kill()
	}
	_ = g.in.Close() // that is what it waits for
	late := time.AfterFunc(5*time.Second, func() { _ = g.cmd.Process.Kill() })
	_ = g.cmd.Wait() // how it ends is of no interest any more
	late.Stop()
	g.running.Forget(g.cmd)
}
