package control

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/health"
	"github.com/weir-lb/weir/internal/control/names"
	"github.com/weir-lb/weir/internal/control/owners"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Datapath forwards packets according to snapshots.
type Datapath interface {
	// Caps returns what it can do; constant.
	Caps() lb.Caps
	// Apply replaces the snapshot, all or nothing. The loop calls it from one goroutine at a time, possibly while Run
	// is running, and never with an older generation.
	Apply(*lb.Snapshot) error
	// Run forwards packets until ctx ends (nil) or it cannot continue.
	Run(ctx context.Context) error
	// Close releases the resources of the data path; called after Run.
	Close() error
}

// Options of a Loop. The zero value works.
type Options struct {
	Log *slog.Logger // nil: silent
	// Probe replaces the network in health checks; nil: real probes.
	Probe health.ProbeFunc
	// Network is what real probes go over; nil: one without sources for tunnels. The loop closes it.
	Network *health.Network
	// Query requests the status of a node of a CoAP cluster; nil: services that follow one learn nothing.
	Query owners.QueryFunc
	// Watch follows a node of a CoAP cluster; nil: nodes are queried again and again.
	Watch owners.WatchFunc
	// OwnersFile keeps what Query has learned for the process after this one; empty: nothing is kept.
	OwnersFile string
	// TablesFile keeps which Maglev tables services had, for the process after this one; empty: nothing is kept.
	TablesFile string
	// WriteBack: each run-time change is written to the file.
	WriteBack bool
	// Lookup resolves the hosts of backends; nil: the system's resolver.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Source is the state of the config discovery service that Receive is called for; nil: there is none.
	Source func() v1.ConfigSource
	// Announce is what is announced; nil: there is nothing that could.
	Announce func() *v1.AnnounceStatus
	// Sync is how the state of flows is shared; nil: the data path cannot.
	Sync func() *v1.SyncStatus
}

// Loop owns the spec, the overrides and the applied snapshot of one data path. All methods are safe for concurrent use.
type Loop struct {
	datapath   Datapath
	log        *slog.Logger
	probe      health.ProbeFunc
	network    *health.Network
	query      owners.QueryFunc
	watch      owners.WatchFunc
	names      *names.Set
	kept       string // Options.OwnersFile
	source     func() v1.ConfigSource
	announce   func() *v1.AnnounceStatus
	sync       func() *v1.SyncStatus
	writeBack  bool // Options.WriteBack
	applied    atomic.Pointer[lb.Snapshot]
	changed    chan struct{} // capacity 1: the applied snapshot changed, probes must follow
	tables     chan struct{} // capacity 1: likewise, for runExpiry
	tablesFile string        // Options.TablesFile
	answers    chan struct{} // Run sends on it to whoever waits in Respond

	mu         sync.Mutex // guards the rest, and serialises Compile and Apply
	spec       *lb.Spec
	document   *config.Document
	doc        documentState
	overrides  *lb.Overrides
	appliedAt  time.Time
	revision   string // of the document that spec came from; empty: it was built in code
	failure    error  // of the last configuration; stays until one succeeds
	failedAt   time.Time
	refusal    error // of the last override; stays until one succeeds
	reloads    uint64
	failures   uint64
	applyTime  metrics.Histogram
	prober     *health.Prober   // nil: not running
	follower   *owners.Follower // likewise
	history    lb.History       // likewise
	tablesKept []byte           // what TablesFile holds
	memory     owners.Memory    // of the process before this one
	news       chan struct{}    // closed and replaced when what Applied returns changes
}

// New returns a loop without configuration. It does not call the data path yet.
func New(datapath Datapath, options Options) *Loop {
	l := &Loop{
		datapath: datapath,
		log:      cmp.Or(options.Log, slog.New(slog.DiscardHandler)),
		probe:    options.Probe,
		network:  cmp.Or(options.Network, &health.Network{}),
		query:    options.Query,
		watch:    options.Watch,
		kept:     options.OwnersFile,
		tables:   make(chan struct{}, 1), tablesFile: options.TablesFile,
		source:   options.Source,
		announce: options.Announce,
		sync:     options.Sync,
		doc:      documentState{events: newEvents()},
		news:     make(chan struct{}),
		changed:  make(chan struct{}, 1),
		answers:  make(chan struct{}),
	}
	l.writeBack = options.WriteBack
	l.network.Log = l.log
	l.names = names.New(names.Options{Lookup: options.Lookup, MaxAddresses: lb.MaxHostAddresses, Log: l.log})
	l.recall()
	l.recallTables()
	return l
}

// Snapshot returns the applied snapshot, nil before the first.
func (l *Loop) Snapshot() *lb.Snapshot { return l.applied.Load() }

// Load decodes, compiles and applies a document. On error the last good snapshot stays; the error is also kept for Status.
func (l *Loop) Load(name string, text []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	spec, document, err := config.Decode[lb.Spec](name, text)
	if err != nil {
		return l.failLocked(err)
	}
	for _, warning := range document.Warnings() {
		l.log.Warn(warning, "event", "configuration_warning")
	}
	if l.doc.changed() {
		return l.mergeLocked(name, text, spec, document)
	}
	if err := l.reloadLocked(spec, document); err != nil {
		return err
	}
	l.loadedLocked(name, text)
	return nil
}

// Revision names a document in the status, for the one who wrote it: 32 hexadecimal digits of its SHA-256.
func Revision(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// LoadFile calls Load with the present content of a file; it returns the text, with which Run compares.
func (l *Loop) LoadFile(file *config.File) ([]byte, error) {
	text, err := file.Read()
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		return nil, l.failLocked(fmt.Errorf("read configuration: %w", err))
	}
	l.mu.Lock()
	l.doc.file = file
	l.mu.Unlock()
	return text, l.Load(file.Path(), text)
}

// SetSpec compiles and applies a spec that was built in code.
func (l *Loop) SetSpec(spec lb.Spec) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doc.readOnly = "it is not that of a file"
	return l.reloadLocked(spec, nil)
}

// Spec returns the spec in force, for commands that change it (the console's add and remove). The slices in it are
// shared: copy what you change.
func (l *Loop) Spec() (lb.Spec, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spec == nil {
		return lb.Spec{}, false
	}
	return *l.spec, true
}

// reloadLocked puts a configuration from outside into force. It ends the error of the one before.
func (l *Loop) reloadLocked(spec lb.Spec, document *config.Document) error {
	if err := l.putLocked(spec, document); err != nil {
		return l.failLocked(Locate(err, document))
	}
	l.failure, l.revision = nil, ""
	l.newsLocked()
	return nil
}

// putLocked compiles and applies a configuration. An error changes nothing.
func (l *Loop) putLocked(spec lb.Spec, document *config.Document) error {
	overrides, err := l.rememberedLocked(spec)
	if err == nil {
		err = l.applyLocked(spec, document, overrides)
	}
	if err != nil {
		return err
	}
	l.overrides = overrides
	l.spec, l.document = &spec, document
	l.reloads++
	snapshot := l.applied.Load()
	l.log.Info("configuration applied", "snapshot_generation", snapshot.Generation, "services", len(snapshot.Services))
	return nil
}

// compileLocked compiles and numbers the next snapshot.
func (l *Loop) compileLocked(spec lb.Spec, document *config.Document, overrides *lb.Overrides) (*lb.Snapshot, error) {
	last := l.applied.Load()
	snapshot, err := lb.CompileAt(lb.Moment{Now: time.Now(), History: l.history}, last, spec, overrides, l.datapath.Caps())
	if err != nil {
		return nil, Locate(err, document)
	}
	if snapshot.Generation = 1; last != nil {
		snapshot.Generation = last.Generation + 1
	}
	if last != nil && snapshot.Limits != last.Limits && l.datapath.Caps().FixedLimits {
		return nil, Locate(&lb.Error{
			Path: "limits", What: "the tables of the data path " + l.datapath.Caps().Name + " were sized when it started",
			Remedy: "take the change back, or restart",
		}, document)
	}
	return snapshot, nil
}

// applyLocked compiles, numbers and applies a snapshot; of the loop it changes only the applied snapshot.
func (l *Loop) applyLocked(spec lb.Spec, document *config.Document, overrides *lb.Overrides) error {
	started := time.Now()
	snapshot, err := l.compileLocked(spec, document, overrides)
	if err != nil {
		return err
	}
	if err := l.datapath.Apply(snapshot); err != nil {
		return fmt.Errorf("apply snapshot %d: %w", snapshot.Generation, err)
	}
	l.applied.Store(snapshot)
	l.appliedAt = time.Now()
	l.applyTime.Observe(l.appliedAt.Sub(started))
	l.newsLocked()
	l.keepTablesLocked(snapshot)
	for _, follower := range []chan struct{}{l.changed, l.tables} {
		select {
		case follower <- struct{}{}:
		default:
		}
	}
	return nil
}

func (l *Loop) failLocked(err error) error {
	l.failure, l.failedAt = err, time.Now()
	l.failures++
	l.newsLocked()
	return err
}

// Locate adds file, line and column to the errors of lb.Compile. Other errors are returned unchanged, and all errors if
// document is nil.
func Locate(err error, document *config.Document) error {
	var several lb.Errors
	if document != nil && errors.As(err, &several) {
		several = slices.Clone(several)
		slices.SortStableFunc(several, func(a, b *lb.Error) int {
			x, y := document.Position(a.Path), document.Position(b.Path)
			return cmp.Or(cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column))
		})
		located := make([]error, len(several))
		for i, one := range several {
			located[i] = document.Errorf(one.Path, "%s; %s", one.What, one.Remedy)
		}
		return config.OneOf(located)
	}
	var wrong *lb.Error
	if document == nil || !errors.As(err, &wrong) {
		return err
	}
	return document.Errorf(wrong.Path, "%s; %s", wrong.What, wrong.Remedy)
}

// ErrNoTarget is wrapped by Override when the spec has no such service or backend.
var ErrNoTarget = errors.New("unknown target")

// Override sets one override (lb.NoOverride removes it) and applies it. An operator's target must exist.
func (l *Loop) Override(target lb.Target, from lb.Overrider, value lb.Override) error {
	return l.SetOverrides(from, map[lb.Target]lb.Override{target: value})
}

// SetOverrides sets several overrides together, so that many probes cost one compilation.
func (l *Loop) SetOverrides(from lb.Overrider, values map[lb.Target]lb.Override) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spec == nil {
		return fmt.Errorf("%w: nothing is configured yet", ErrNoTarget)
	}
	return l.overrideLocked(l.overrides, from, from.String(), values)
}

// OverrideBy is Override in the name of an operator, who is in the log.
func (l *Loop) OverrideBy(by string, target lb.Target, value lb.Override) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spec == nil {
		return fmt.Errorf("%w: nothing is configured yet", ErrNoTarget)
	}
	return l.overrideLocked(l.overrides, lb.FromOperator, by, map[lb.Target]lb.Override{target: value})
}

// overrideLocked applies overrides on top of next. by is who wants them.
func (l *Loop) overrideLocked(next *lb.Overrides, from lb.Overrider, by string, values map[lb.Target]lb.Override) error {
	for target, value := range values {
		if err := l.existsLocked(target); err != nil && (value != lb.NoOverride || next.From(target, from) == lb.NoOverride) {
			if from == lb.FromOperator {
				return err
			}
			continue // a reload has removed the target before the probe reported
		}
		next = next.With(target, from, value)
	}
	if err := l.applyLocked(*l.spec, l.document, next); err != nil {
		l.refusal = err
		l.failures++
		l.newsLocked()
		return err
	}
	l.overrides, l.refusal = next, nil
	for target, value := range values {
		l.log.Info("override", "target", target.String(), "from", from.String(), "value", value.String(),
			"by", by, "snapshot_generation", l.applied.Load().Generation)
	}
	return nil
}

func (l *Loop) existsLocked(target lb.Target) error {
	snapshot := l.applied.Load()
	service := snapshot.Service(target.Service)
	if service == nil {
		return fmt.Errorf("%w: no service %q", ErrNoTarget, target.Service)
	}
	if target.Backend != "" && service.Backend(target.Backend) == nil {
		return fmt.Errorf("%w: service %q has no backend %q", ErrNoTarget, target.Service, target.Backend)
	}
	return nil
}

// Run follows the file (nil: none) and probes backends until ctx ends. seen is what LoadFile returned.
func (l *Loop) Run(ctx context.Context, file *config.File, seen []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() { l.runQueries(ctx) })
	group.Go(func() { l.runExpiry(ctx) })
	defer group.Wait()
	defer cancel()
	if file == nil {
		<-ctx.Done()
		return nil
	}
	return file.Watch(ctx, seen, func(text []byte, err error) {
		if err == nil {
			err = l.Load(file.Path(), text)
		} else {
			l.mu.Lock()
			err = l.failLocked(fmt.Errorf("read configuration: %w", err))
			l.mu.Unlock()
		}
		if err != nil {
			l.log.Error("configuration refused, the last good one stays", "error", err)
		}
	})
}

// Timings are how long the loop's own work took.
type Timings struct {
	Apply  metrics.Histogram                   `metric:"weir_apply_duration_seconds" buckets:"100µs..25s" help:"Time to compile and apply a configuration or an override."`
	Probes map[health.Result]metrics.Histogram `metric:"weir_probe_duration_seconds" buckets:"100µs..10s" help:"Duration of health probes, by service and result: pass or fail."`
}

// Timings returns them since the start.
func (l *Loop) Timings() Timings {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := Timings{Apply: l.applyTime}
	if l.prober != nil {
		t.Probes = l.prober.Durations()
	}
	return t
}

// Status returns the present state. It holds no secret.
func (l *Loop) Status() v1.BalancerStatus {
	var announced *v1.AnnounceStatus // it is asked for without the lock: routers may be slow
	if l.announce != nil {
		announced = l.announce()
	}
	var shared *v1.SyncStatus
	if l.sync != nil {
		shared = l.sync()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := v1.BalancerStatus{Announce: announced, Sync: shared, ConfigGeneration: l.doc.events.generation, Unsaved: l.doc.changed(), AppliedAt: l.appliedAt, Reloads: l.reloads, Failures: l.failures, Revision: l.revision, Datapath: l.datapath.Caps().Name}
	switch {
	case l.failure != nil:
		failedAt := l.failedAt
		s.Error, s.FailedAt = l.failure.Error(), &failedAt
	case l.refusal != nil:
		s.Error = l.refusal.Error()
	}
	if l.source != nil {
		source := l.source()
		s.Source = &source
	}
	if l.names.Len() > 0 {
		s.Names = l.names.Status()
	}
	if snapshot := l.applied.Load(); snapshot != nil {
		s.Generation = snapshot.Generation
		s.Services, s.Tier = Describe(snapshot, l.overrides), DescribeTier(snapshot)
	}
	var clusters map[string]*v1.ClusterStatus // before the first query: none
	if l.follower != nil {
		clusters = l.follower.Status()
	}
	for i := range s.Services {
		s.Services[i].Cluster = clusters[s.Services[i].Name]
	}
	return s
}

// Respond returns when Run's loop has answered and no change of the configuration is under way, or when ctx ends: a watchdog calls it.
func (l *Loop) Respond(ctx context.Context) {
	select {
	case <-l.answers:
	case <-ctx.Done():
		return
	}
	l.mu.Lock() // a data path that does not return from Apply holds it
	defer l.mu.Unlock()
}

// Ready returns nil once a snapshot is applied, whatever happened to later ones.
func (l *Loop) Ready() error {
	if l.applied.Load() != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return l.failure
	}
	return errors.New("no configuration yet")
}
