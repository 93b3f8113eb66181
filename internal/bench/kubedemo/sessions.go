package kubedemo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

const (
	rebindEvery = 3 * time.Second // each client changes its port so often
	pause       = 40 * time.Millisecond
)

// report is a line that Clients writes: what has happened since the start, and the latency of the last interval.
type report struct {
	At       float64 // seconds
	Stats    v1.CoAPBenchStats
	P50, P99 float64 // ms
	Done     bool
}

// Clients runs DTLS clients of a CoAP server until ctx ends, and writes a line of JSON in each interval. It is a process of its own, because it
// has to be in another network namespace.
func Clients(ctx context.Context, out io.Writer, address string, count int, interval time.Duration) error {
	lines := json.NewEncoder(out)
	var written error
	result, err := client.Bench(ctx, client.BenchConfig{
		URI: "coaps://" + address + "/benchmark?rlen=40", Clients: count, Duration: time.Hour, Pause: pause, Workers: 1, RebindEvery: rebindEvery, LiveEvery: interval,
	}, func(s client.Snapshot) {
		written = errors.Join(written, lines.Encode(report{At: s.Elapsed.Seconds(), Stats: s.Total, P50: measure.Millis(s.P50), P99: measure.Millis(s.P99)}))
	})
	if err != nil {
		return err
	}
	return errors.Join(written, lines.Encode(report{Stats: result.Stats, Done: true}))
}

// sessions is the process that runs Clients.
type sessions struct {
	group *programs.Group
	cmd   *exec.Cmd
	log   *programs.LastLines
	ended chan struct{}

	mu   sync.Mutex
	last report
	err  error
}

// startSessions starts clients of an address in the remote namespace, and waits until all have a session.
func startSessions(ctx context.Context, c *cluster, address netip.AddrPort) (*sessions, error) {
	s := &sessions{group: programs.NewGroup(), log: &programs.LastLines{}, ended: make(chan struct{})}
	s.cmd = exec.Command(c.cfg.Self, "clients", address.String(), fmt.Sprint(c.cfg.Clients), c.cfg.Tick.String())
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stderr = s.log
	if err := s.group.Start(c.remote, s.cmd); err != nil {
		return nil, err
	}
	go s.read(out)
	return s, c.await(ctx, "all clients have a DTLS session"+s.log.LastOutput(), func() bool {
		r, err := s.now()
		return err != nil || r.Stats.Handshakes >= uint64(c.cfg.Clients)
	})
}

func (s *sessions) read(out io.Reader) {
	defer close(s.ended)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err == nil {
			s.mu.Lock()
			s.last = r
			s.mu.Unlock()
		}
	}
	err := s.cmd.Wait()
	s.group.Forget(s.cmd)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.Done {
		s.err = fmt.Errorf("the DTLS clients ended before their time: %w%s", errors.Join(err, errors.New("no last line")), s.log.LastOutput())
	}
}

// now is the last line, or why there are no more.
func (s *sessions) now() (report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.err
}

// stop ends the clients and returns what became of them.
func (s *sessions) stop() (report, error) {
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return report{}, err
	}
	select {
	case <-s.ended:
	case <-time.After(within):
		s.group.End()
		<-s.ended
	}
	return s.now()
}
