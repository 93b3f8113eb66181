package scalebench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// balancer is the program in the lab's balancer namespace; none on the paths of the kernel.
type balancer struct {
	path   path
	config ViaConfig
	stage  *programs.Stage
	args   []string
	pins   string

	mu   sync.Mutex
	weir *programs.Daemon // nil while there is none
}

func (b *balancer) daemon() *programs.Daemon {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.weir
}

func (b *balancer) set(d *programs.Daemon) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.weir = d
}

// open makes the path: rules, and the program if it has one.
func (b *balancer) open(ctx context.Context, flows int) error {
	if b.path.rules != nil {
		program, lines, script := b.path.rules(b.config.Backends)
		for _, line := range lines {
			if err := b.exec(ctx, script, program, line...); err != nil {
				return err
			}
		}
	}
	if b.path.mode == "" {
		return nil
	}
	file := filepath.Join(b.stage.Dir, "weir.yaml")
	if err := os.WriteFile(file, []byte(b.path.weirConfig(b.config.Backends, flows)), 0o600); err != nil {
		return err
	}
	b.args = append([]string{"lb", "run", "-c", file}, b.path.run...)
	if b.path.queues {
		rules := []string{"lb", "rules", "-c", file, "--queue", b.path.run[len(b.path.run)-1], "--interface", leftDevice, "--apply"}
		if b.path.unmarked {
			rules = append(rules, "--unmarked")
		}
		if err := b.exec(ctx, "", b.config.Binary, rules...); err != nil {
			return err
		}
	} else {
		if err := programs.SweepPins(); err != nil {
			return err
		}
		devices := leftDevice
		for i := range b.config.Backends {
			if b.path.replies {
				devices += "," + backendDevice(i)
			}
		}
		b.pins = programs.PinPath("tcp-" + b.path.name)
		b.args = append(b.args, "--interface", devices, "--pin-path", b.pins)
	}
	return b.start(ctx)
}

func (b *balancer) exec(ctx context.Context, input, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	_, err := b.stage.Output(ctx, "balancer", cmd)
	return err
}

// start starts the program and waits until it is at work.
func (b *balancer) start(ctx context.Context) error {
	d, err := programs.StartDaemon(ctx, b.stage.Running, b.stage.Host("balancer"), b.config.Binary, b.stage.Dir, "lb", b.args...)
	if err == nil {
		err = d.Ready(ctx)
	}
	b.set(d)
	return err
}

// again ends the program, by an interrupt or at once, and starts it again after a while.
func (b *balancer) again(ctx context.Context, kill bool, away time.Duration) error {
	d := b.daemon()
	b.set(nil) // no one shall take its end for a failure
	if kill {
		d.Kill()
	} else if err := d.Stop(); err != nil {
		return err
	}
	if err := programs.Sleep(ctx, away); err != nil {
		return err
	}
	return b.start(ctx)
}

// drain has Weir give a backend no new flows.
func (b *balancer) drain(ctx context.Context, backend string) error {
	if b.path.mode == "" {
		return nil
	}
	_, err := b.daemon().Do(ctx, http.MethodPost, "/drain?service="+service+"&backend="+backend, "")
	return err
}

// failure is that of a program that ended by itself.
func (b *balancer) failure() error {
	if d := b.daemon(); d != nil {
		return d.Failure()
	}
	return nil
}

// close ends the program and removes what it leaves in the kernel.
func (b *balancer) close(ctx context.Context) error {
	var err error
	if d := b.daemon(); d != nil {
		err = d.Stop()
	}
	if b.pins != "" {
		err = errors.Join(err, programs.StopWeir(ctx, b.stage.Running, b.config.Binary, b.stage.Host("balancer"), b.pins))
	}
	return err
}

// cpu is the processor time of the program.
func (b *balancer) cpu() time.Duration {
	d := b.daemon()
	if d == nil {
		return 0
	}
	spent, err := procstat.CPU(d.PID())
	if err != nil {
		return 0 // it is just being restarted
	}
	return spent
}

// look reads the counters.
func (b *balancer) look(ctx context.Context) (Balancer, error) {
	if b.path.tracked {
		return b.tracked()
	}
	d := b.daemon()
	if d == nil {
		return Balancer{}, errors.New("no balancer")
	}
	metrics, err := d.Metrics(ctx)
	if err != nil {
		return Balancer{}, err
	}
	counters := balancerOf(metrics)
	if usage, err := procstat.Of(d.PID()); err == nil {
		counters.RSS = usage.ResidentBytes
	}
	return counters, nil
}

// tracked reads what connection tracking says in the namespace.
func (b *balancer) tracked() (counters Balancer, err error) {
	err = b.stage.Host("balancer").Do(func() error {
		for name, into := range map[string]*int{"nf_conntrack_count": &counters.Flows, "nf_conntrack_max": &counters.FlowsMax} {
			text, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
			if err == nil {
				*into, err = strconv.Atoi(strings.TrimSpace(string(text)))
			}
			if err != nil {
				return fmt.Errorf("connection tracking: %w", err)
			}
		}
		text, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
		if err != nil {
			return fmt.Errorf("statistics of connection tracking: %w", err)
		}
		for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			words := strings.Fields(line)
			if i == 0 || len(words) < 12 { // names; one line for each processor then
				continue
			}
			for _, at := range []int{9, 10} { // insert_failed, drop
				n, err := strconv.ParseUint(words[at], 16, 64)
				if err != nil {
					return fmt.Errorf("statistics of connection tracking: %w", err)
				}
				counters.TableFull += n
			}
		}
		return nil
	})
	return counters, err
}

// balancerOf takes what we show from metrics; those that it does not know are passed over.
func balancerOf(metrics map[string]float64) Balancer {
	b := Balancer{Packets: map[string]uint64{}}
	for name, n := range metrics {
		name, labels, ok := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		if !ok {
			continue // the sum of those with labels
		}
		switch table := label(labels, "table"); { // with a fast path, each data path has tables of its own
		case name == "weir_table_entries" && table == "flows":
			b.Flows += int(n)
		case name == "weir_table_size" && table == "flows":
			b.FlowsMax += int(n)
		case name == "weir_table_refused_total" && table == "flows":
			b.TableFull += uint64(n)
		case name == "weir_packets_total":
			b.Packets[label(labels, "reason")] += uint64(n)
		case name == "weir_queue_dropped_total", name == "weir_queue_user_dropped_total":
			b.QueueFull += uint64(n)
		}
	}
	b.TableFull = max(b.TableFull, b.Packets["flow_table_full"]) // a path that counts both counts each once
	return b
}

// label is the value of one; ours hold no quotes.
func label(labels, name string) string {
	for _, one := range strings.Split(labels, ",") {
		if value, ok := strings.CutPrefix(one, name+`="`); ok {
			return strings.TrimSuffix(value, `"`)
		}
	}
	return ""
}
