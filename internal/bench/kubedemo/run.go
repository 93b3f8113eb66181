package kubedemo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weir-lb/weir/internal/testbed/programs"
)

// Config says what to show. Zero values mean the defaults.
type Config struct {
	Weir    string        // the weir binary, of which all Pods run
	Deploy  string        // the program of tools/deploy, which renders charts
	Root    string        // the repository's directory
	Self    string        // this program, which runs Clients when its first argument is clients
	Clients int           // DTLS clients, and TURN allocations; default 50
	Calm    time.Duration // between two events; default 2 s
	Tick    time.Duration // between two points of the plots; default 500 ms
	Out     io.Writer     // the live view, redrawn on a terminal
}

// Run shows it. The error says what could not be started; a run that ended but lost something has Result.OK false and no error.
// Nothing that it started is left when it returns.
func Run(ctx context.Context, cfg Config) (result *Result, err error) {
	cfg.Clients, cfg.Calm, cfg.Tick = cmp.Or(cfg.Clients, 50), cmp.Or(cfg.Calm, 2*time.Second), cmp.Or(cfg.Tick, 500*time.Millisecond)
	v := newView(cfg.Out)
	begin := time.Now()
	v.say("starting etcd, the API server and its controllers")
	c, err := newCluster(ctx, cfg)
	defer func() { err = errors.Join(err, c.close()) }()
	if err != nil {
		return nil, err
	}
	v.say("applying the charts and two Gateways")
	if err := c.install(ctx); err != nil {
		return nil, err
	}
	r := &run{cluster: c, view: v, result: &Result{Clients: cfg.Clients}}
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	defer r.release()
	r.result.Prepared = time.Since(begin).Seconds()
	if err := r.play(ctx); err != nil {
		return nil, err
	}
	return r.result, r.finish(ctx)
}

// run is the part with traffic.
type run struct {
	*cluster
	view     *view
	result   *Result
	sessions *sessions
	calls    *calls
	begin    time.Time
}

// connect waits for the Gateways and begins with the traffic.
func (r *run) connect(ctx context.Context) error {
	r.view.say("waiting for the Gateways")
	edge, err := r.programmed(ctx, "coap", "edge")
	if err != nil {
		return err
	}
	calls, err := r.programmed(ctx, "media", "calls")
	if err != nil {
		return err
	}
	for _, w := range []struct{ namespace, kind, name string }{{"coap", "statefulsets", "coap"}, {"weir-system", "daemonsets", "weir-l4"}, {"media", "deployments", "calls"}} {
		if err := r.await(ctx, w.name+" is ready", func() bool { return r.rolled(w.namespace, w.kind, w.name) }); err != nil {
			return err
		}
	}
	r.result.L4, r.result.TURN = netip.AddrPortFrom(edge, 5684), netip.AddrPortFrom(calls, 3478)
	r.view.say("connecting the clients")
	if r.sessions, err = startSessions(ctx, r.cluster, r.result.L4); err != nil {
		return err
	}
	if r.calls, err = startCalls(ctx, r.cluster, r.result.TURN); err != nil {
		return err
	}
	r.begin = time.Now()
	return nil
}

// release ends the clients of a run that failed.
func (r *run) release() {
	if r.sessions != nil {
		r.sessions.group.End()
	}
}

// event is something that is done to the cluster.
type event struct {
	label, short string
	do           func(ctx context.Context) error
}

func (r *run) events() []event {
	return []event{
		{"the load balancer's Pod is replaced", "L4", func(ctx context.Context) error { return r.restart(ctx, "weir-system", "daemonsets", "weir-l4") }},
		{"the TURN gateway's Pod is replaced; its calls stay", "TURN", r.restartTURN},
		{"the 3 CoAP Pods are replaced, one by one", "CoAP", func(ctx context.Context) error { return r.restart(ctx, "coap", "statefulsets", "coap") }},
		{"the load balancer is killed (SIGKILL)", "kill", func(ctx context.Context) error {
			return r.kill(ctx, "weir-system", "app.kubernetes.io/name", "weir-l4")
		}},
		{"the operator is killed (SIGKILL)", "kill", func(ctx context.Context) error {
			return r.kill(ctx, "weir-system", "app.kubernetes.io/name", "weir-operator")
		}},
	}
}

// restartTURN changes the template of the gateway: a new Pod begins, and the old one stays for as long as it has allocations.
func (r *run) restartTURN(ctx context.Context) error {
	const label, value = "stunner.l7mp.io/related-gateway-name", "calls"
	old := r.pods("media", label, value)
	if err := r.plane.Merge("/apis/stunner.l7mp.io/v1/dataplanes/default", `{"spec": {"annotations": {"demo/restarted": "once"}}}`); err != nil {
		return err
	}
	return r.await(ctx, "a new Pod of the TURN gateway is ready, and the old one ends", func() bool {
		ready, ending := 0, 0
		for _, p := range r.pods("media", label, value) {
			switch {
			case p.DeletionTimestamp != nil:
				ending++
			case len(old) == 1 && p.Name != old[0].Name && isReady(&p):
				ready++
			}
		}
		return ready == 1 && ending == 1
	})
}

func isReady(p *corev1.Pod) bool {
	for _, x := range p.Status.Conditions {
		if x.Type == corev1.PodReady {
			return x.Status == corev1.ConditionTrue
		}
	}
	return false
}

// play makes the events happen, one after the other, while the traffic is looked at.
func (r *run) play(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	looked := make(chan struct{})
	watching, stop := context.WithCancel(ctx)
	go func() {
		defer close(looked)
		for programs.Sleep(watching, r.cfg.Tick) == nil {
			if err := r.look(); err != nil {
				cancel(err)
				return
			}
		}
	}()
	defer func() { stop(); <-looked }()
	for _, e := range r.events() {
		if err := programs.Sleep(ctx, r.cfg.Calm); err != nil {
			return context.Cause(ctx)
		}
		at := time.Since(r.begin)
		r.view.begin(at, e.label)
		if err := e.do(ctx); err != nil {
			return errors.Join(context.Cause(ctx), fmt.Errorf("%s: %w", e.label, err))
		}
		took := time.Since(r.begin) - at
		r.view.done(took)
		r.result.Events = append(r.result.Events, Event{At: at.Seconds(), Took: took.Seconds(), Label: e.label, Short: e.short})
	}
	if err := programs.Sleep(ctx, r.cfg.Calm); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// look reads the counters of the traffic.
func (r *run) look() error {
	s, err := r.sessions.now()
	if err != nil {
		return err
	}
	c, err := r.calls.now()
	if err != nil {
		return err
	}
	r.view.tick(r.result.tick(time.Since(r.begin).Seconds(), &s, c))
	return nil
}

// finish ends the traffic and judges.
func (r *run) finish(ctx context.Context) error {
	r.result.Seconds = time.Since(r.begin).Seconds()
	var err error
	if r.result.Steered, err = r.steered(); err != nil {
		return err
	}
	c, alive, err := r.calls.end(ctx)
	if err != nil {
		return fmt.Errorf("TURN: %w", err)
	}
	s, err := r.sessions.stop()
	if err != nil {
		return err
	}
	r.result.Sessions, r.result.Calls = s.Stats, Calls{Alive: alive, Up: c.up, Down: c.down, Lost: c.lost, Idle: c.idle}
	r.result.judge(len(r.events()))
	r.view.end()
	return nil
}
