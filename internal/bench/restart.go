package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// RestartConfig says how often a CoAP server is restarted under which load.
type RestartConfig struct {
	Run
	Clients  int
	Interval time.Duration // pause of a client between response and next request; 0: none
	Times    int           // of each event
	Every    time.Duration // from an event to the next one, at least
	Events   []string      // names of RestartEvents; empty: all that have aims

	// Replicate: the store, which is "embedded", in which the server and two other cluster nodes on its host agree, which copy their sessions to
	// each other; no event rolls. Empty: the server is alone.
	Replicate string
}

// Validate says what cannot be meant.
func (c *RestartConfig) Validate() error {
	switch {
	case c.Clients < 1 || c.Clients > 20_000:
		return fmt.Errorf("--clients %d: give 1 to 20000", c.Clients)
	case c.Interval < 0:
		return fmt.Errorf("--interval %v: it must not be negative", c.Interval)
	case c.Times < 1 || c.Times > 1000:
		return fmt.Errorf("--times %d: give 1 to 1000", c.Times)
	case c.Every < 2*time.Second || c.Every > time.Hour:
		return fmt.Errorf("--every %v: give 2s to 1h", c.Every)
	}
	if err := knownNames("event", c.Events, namesOf(restartEvents())); err != nil || c.Replicate == "" {
		return err
	}
	if c.Replicate != replicaStore {
		return fmt.Errorf("--replicate %s: give %s: the nodes are the store themselves", c.Replicate, replicaStore)
	}
	for _, e := range restartEvents() {
		if e.roll != "" && slices.Contains(c.Events, e.name) {
			return fmt.Errorf("--replicate: the nodes of the event %s move their sessions before they end, so that a copy changes nothing; "+
				"remove one of the two", e.name)
		}
	}
	return nil
}

// measured are the events of the configuration.
func (c *RestartConfig) measured() []restartEvent {
	return slices.DeleteFunc(restartEvents(), func(e restartEvent) bool {
		unasked := e.unasked || e.roll != "" && (c.Replicate != "" || netlab.Privileged() != nil)
		return !wanted(c.Events, e.name) || unasked && len(c.Events) == 0
	})
}

// restartEvent is something that happens to the server.
type restartEvent struct {
	name, about string
	state       bool   // the server has a state directory
	unasked     bool   // measured only where it is named: it is known to end sessions
	roll        string // the server is a cluster of nodes behind a balancer with this mode, which needs privileges
	happen      func(r *restart, ctx context.Context) error
}

func (e restartEvent) describe() (name, about string) { return e.name, e.about }

func restartEvents() []restartEvent {
	return []restartEvent{
		{name: "none", about: "nothing happens: the waits of the load alone"},
		{name: "kill", about: "kill -9 of the serving process; the supervisor starts another one", happen: (*restart).kill},
		{name: "terminate", about: "SIGTERM to the supervisor, then a new start with the same --state", state: true, happen: (*restart).terminate},
		{name: "sigusr2", about: "SIGUSR2 to the supervisor: upgrade to the binary at its path, here the same one", happen: (*restart).signalUpgrade},
		{name: "upgrade", about: "the same by weir coap upgrade", happen: (*restart).upgrade},
		{name: "rolling", about: "one of three cluster nodes behind weir lb (ebpf, mode nat) is drained, ended by SIGTERM and started, in turn", roll: "nat", happen: (*restart).rollOne},
		{name: "rolling-dsr", about: "the same in mode l2dsr", roll: "l2dsr", happen: (*restart).rollOne},
		{name: "stop", about: "SIGTERM without --state, then a new start: sessions end, which misses the aims", unasked: true, happen: (*restart).terminate},
	}
}

// RestartEvents describes what can happen, in the order in which it is measured: name, tab, what it is.
func RestartEvents() []string { return describe(restartEvents()) }

// restart is the measurement of one event.
type restart struct {
	*programs.Stage
	config   RestartConfig
	event    restartEvent
	at       netip.AddrPort
	nodes    []netip.AddrPort // where sessions are replicated: public and management address of each node, the server first
	server   *programs.Daemon
	args     []string
	roll     *roll     // nil: one server
	replicas *replicas // nil: sessions are not replicated
}

// Restart measures each event under a load of its own, and returns a result for each.
func Restart(ctx context.Context, config RestartConfig) (results []*measure.Result, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	events := config.measured()
	for i, event := range events {
		r := &restart{config: config, event: event}
		r.config.Progress = func(done float64, what string) {
			config.progress((float64(i)+done)/float64(len(events)), "%s: %s", event.name, what)
		}
		result, err := r.measure(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			result = r.result(time.Now())
			result.Parameters[paramFailed] = err.Error()
		}
		results = append(results, result)
	}
	return results, nil
}

// restartTopology is the clients and the server, each a host.
func restartTopology() *netlab.Topology {
	return &netlab.Topology{
		Name:       "benchrestart",
		Namespaces: []netlab.Namespace{{Name: "clients"}, {Name: "server"}},
		Links:      []netlab.Link{netlab.Cable("clients eth0 10.83.1.2/24", "server eth0 10.83.1.1/24")},
	}
}

// measure runs the load on a new server while the event happens to it.
func (r *restart) measure(ctx context.Context) (result *measure.Result, err error) {
	topology, err := r.network()
	if err != nil {
		return nil, err
	}
	if r.Stage, err = programs.OpenStage(r.config.Binary, topology); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	load, err := r.startLoad()
	if err != nil {
		return nil, err
	}
	defer load.stop()
	if err := load.started(ctx); err != nil {
		return nil, err
	}
	if r.replicas != nil {
		if err := r.replicas.begin(ctx, r.server, r.config.Clients); err != nil {
			return nil, err
		}
	}
	windows, err := r.happenings(ctx, load)
	if err != nil {
		return nil, err
	}
	total, err := load.end(ctx)
	if err != nil {
		return nil, err
	}
	result = r.result(windows[0].at)
	r.fill(result, windowsOf(windows, load.taken()), load.taken(), &total)
	return result, nil
}

// network is what the event needs: namespaces, or nil for loopback.
func (r *restart) network() (*netlab.Topology, error) {
	r.at = netip.MustParseAddrPort("10.83.1.1:5784")
	switch {
	case r.event.roll != "":
		r.at = netip.AddrPortFrom(netip.MustParseAddr(movedVIP), movedPort)
		return rollTopology(r.event.roll), privileged()
	case netlab.Privileged() == nil:
		r.nodes = replicaAddresses(r.at)
		return restartTopology(), nil
	}
	ports := 1
	if r.config.Replicate != "" {
		ports = 2 * replicaNodes
	}
	nodes, err := freePorts(nil, ports)
	if err != nil {
		return nil, err
	}
	r.at, r.nodes = nodes[0], nodes
	return nil, nil
}

// start starts the server with its supervisor, or the cluster.
func (r *restart) start(ctx context.Context) (err error) {
	if r.event.roll != "" {
		r.roll, err = openRoll(ctx, r.Stage, r.event.roll)
		return err
	}
	r.args = []string{"coap", "server"}
	if r.config.Replicate != "" {
		if r.replicas, err = openReplicas(ctx, r.Stage, r.nodes); err != nil {
			return err
		}
		r.args = append(r.args, r.replicas.args(0)...)
	} else {
		r.args = append(r.args, "--dtls-only", "--dtls", r.at.String())
	}
	if r.event.state {
		r.args = append(r.args, "--state", filepath.Join(r.Dir, "state"))
	}
	if err := r.startServer(ctx); err != nil || r.replicas == nil {
		return err
	}
	return r.replicas.ready(ctx, r.server)
}

func (r *restart) startServer(ctx context.Context) (err error) {
	r.server, err = r.Daemon(ctx, "server", "server", r.args...)
	return err
}

// startLoad starts the clients. They go on after an error with a new handshake, as devices do.
func (r *restart) startLoad() (*coapLoad, error) {
	namespace := "clients"
	if r.roll != nil {
		namespace = "client"
	}
	return startCoapLoad(r.Stage, namespace, "coaps://"+r.at.String()+"/benchmark?rlen=40", "--clients", fmt.Sprint(r.config.Clients),
		"--interval", r.config.Interval.String(), "--duration", "24h", "--progress", "json")
}

// happenings lets the event happen as often as it shall, and waits after each.
func (r *restart) happenings(ctx context.Context, load *coapLoad) (windows []restartWindow, err error) {
	for i := range r.config.Times {
		if err := programs.Sleep(ctx, time.Second/2); err != nil { // the load is even again, and what a killed process had stored is stable
			return nil, err
		}
		r.config.progress(float64(i)/float64(r.config.Times), "%d of %d", i+1, r.config.Times)
		w := restartWindow{load: loadAverage()}
		if err := r.once(ctx, &w); err != nil {
			return nil, err
		}
		if err := programs.Sleep(ctx, time.Until(w.at.Add(r.config.Every))); err != nil {
			return nil, err
		}
		if r.replicas != nil {
			if err := r.replicas.end(ctx, r.server, &w); err != nil {
				return nil, err
			}
		}
		windows = append(windows, w)
		if err := load.failure(); err != nil {
			return nil, err
		}
	}
	return windows, nil
}

// once lets the event happen once, and waits until it is over.
func (r *restart) once(ctx context.Context, w *restartWindow) error {
	before := 0
	if r.roll == nil {
		var err error
		if before, err = servingProcess(ctx, r.server); err != nil {
			return err
		}
	}
	w.at = time.Now()
	if r.event.happen == nil {
		return nil
	}
	if err := r.event.happen(r, ctx); err != nil {
		return err
	}
	w.served = time.Since(w.at)
	if r.roll != nil {
		w.served -= r.roll.quiet
		w.moving, w.forwarded = r.roll.moving, r.roll.after
		return nil
	}
	if err := r.becomes(ctx, before); err != nil {
		return err
	}
	w.served = time.Since(w.at)
	return nil
}

// becomes waits until another process than that of before serves.
func (r *restart) becomes(ctx context.Context, before int) error {
	return until(ctx, programs.ReadyTimeout, func() error {
		now, err := servingProcess(ctx, r.server)
		if err == nil && now == before {
			err = fmt.Errorf("process %d goes on", before)
		}
		return err
	})
}

func (r *restart) kill(ctx context.Context) error {
	pid, err := servingProcess(ctx, r.server)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

func (r *restart) terminate(ctx context.Context) error {
	if err := syscall.Kill(r.server.PID(), syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-r.server.Ended():
	case <-ctx.Done():
		return ctx.Err()
	}
	return r.startServer(ctx)
}

func (r *restart) signalUpgrade(context.Context) error {
	return syscall.Kill(r.server.PID(), syscall.SIGUSR2)
}

func (r *restart) upgrade(ctx context.Context) error {
	_, err := r.Output(ctx, "server", exec.Command(r.Binary, "coap", "upgrade", "--admin", r.server.Admin())) //nolint:gosec // our own binary
	return err
}

// loadAverage is that of the last minute; 0 where the kernel does not say it.
func loadAverage() float64 {
	first, _, _ := strings.Cut(procstat.LoadAverage(), " ")
	average, _ := strconv.ParseFloat(first, 64)
	return average
}
