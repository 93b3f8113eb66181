package turn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/files"
	"github.com/weir-lb/weir/internal/handover"
	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/kube/lookup"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// Environment variables of stunnerd, which its operator sets in the Pods of the data plane.
const (
	envOrigin    = "STUNNER_CONFIG_ORIGIN"
	envName      = "STUNNER_NAME"
	envNamespace = "STUNNER_NAMESPACE"
	envNode      = "STUNNER_NODENAME"
	envAddress   = "STUNNER_ADDR"
)

// defaultHealth is where stunnerd answers probes before its first configuration.
const defaultHealth = ":8086"

// originKubernetes in place of an address: the service is found at the API server, as by stunnerd.
const originKubernetes = "k8s"

// discovered is a configuration of a config discovery service.
type discovered struct {
	watcher discovery.Watcher
	cluster *lookup.Config  // at whose API server the service is found; nil: it has an address
	watch   bool            // false: it is read once, at the start
	store   *handover.Store // what outlives this process; nil: nothing
	first   string          // address of the health endpoint before the first configuration
	applied []byte          // the configuration in force; nil: none was received
	kept    atomic.Bool     // the configuration in force was received by an earlier process
}

// newDiscovered reads the address of the service and the id of the configuration; an empty id is the one in the environment. The
// service k8s is found in cluster.
func newDiscovered(service, id string, watch bool, cluster lookup.Config) (*discovered, error) {
	d := &discovered{watch: watch, first: defaultHealth}
	if service == originKubernetes {
		d.cluster = &cluster
		d.watcher.Dial, d.watcher.Service = d.cluster.Dial, originKubernetes
		if _, err := d.cluster.Client(); err != nil {
			return nil, fmt.Errorf("-c %s: %w", originKubernetes, err)
		}
	} else if cluster != (lookup.Config{}) {
		return nil, fmt.Errorf("--kubeconfig, --context and --cds-server-* are about -c %s; remove them", originKubernetes)
	}
	var err error
	if d.cluster == nil {
		if d.watcher.Origin, err = discovery.ParseOrigin(service); err != nil {
			return nil, fmt.Errorf("-c: %w", err)
		}
	}
	if name, namespace := os.Getenv(envName), os.Getenv(envNamespace); id == "" && name != "" && namespace != "" {
		id = namespace + "/" + name
	}
	if id == "" {
		return nil, fmt.Errorf("the name of the configuration at %s is missing; write --id NAMESPACE/NAME, or set %s and %s", d.watcher.Status().Service, envNamespace, envName)
	}
	if d.watcher.ID, err = discovery.ParseID(id); err != nil {
		return nil, fmt.Errorf("--id: %w", err)
	}
	d.watcher.Node = os.Getenv(envNode)
	return d, nil
}

// get reads the configuration once.
func (d *discovered) get(ctx context.Context) ([]byte, error) {
	if d.cluster != nil {
		return d.cluster.Get(ctx, d.watcher.ID, d.watcher.Node)
	}
	return discovery.Get(ctx, d.watcher.Origin, d.watcher.ID, d.watcher.Node)
}

// keep makes the last configuration outlive the process, in the records of the gateway's store.
func (s *gatewaySource) keep(k *handover.Store) {
	if s.found != nil {
		s.found.store = k
	}
}

// status is the state of the client, for the admin API.
func (d *discovered) status() v1.ConfigDiscovery {
	status := d.watcher.Status()
	status.Kept = d.kept.Load()
	return status
}

// load returns the configuration to begin with: without a watch the one that the service has; else, or if the service does not answer,
// the last one of an earlier process; else one without listeners.
func (d *discovered) load(s *gatewaySource) (*files.GatewayPlan, []byte, error) {
	var failure error
	if !d.watch {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		text, err := d.get(ctx)
		cancel()
		if err == nil {
			plan, err := s.parse(text)
			if err == nil {
				d.keep(text)
			}
			return plan, text, err
		}
		failure = err
	}
	if text := d.last(); text != nil {
		plan, err := s.parse(text)
		if err == nil {
			err = plan.Check()
		}
		if err == nil {
			d.kept.Store(true)
			d.applied = text
			return plan, text, nil
		}
		failure = errors.Join(failure, fmt.Errorf("the last configuration, of an earlier process: %w", err))
	}
	if !d.watch {
		return nil, nil, failure
	}
	plan, err := s.parse(stunnerd.Bootstrap(d.watcher.ID.String(), d.health()))
	if err == nil && failure != nil {
		plan.Notes = append(plan.Notes, failure.Error()+"; it is ignored")
	}
	return plan, nil, err
}

// health is the URL of the health endpoint before the first configuration; empty: there is none.
func (d *discovered) health() string {
	if d.first == "" {
		return ""
	}
	return "http://" + d.first
}

// last is the configuration that an earlier process stored; nil: there is none.
func (d *discovered) last() (text []byte) {
	if d.store == nil {
		return nil
	}
	d.store.Records(func(id uint64, record []byte) bool {
		if id == gateway.ConfigID {
			text = record
		}
		return text == nil
	})
	return text
}

// keep stores a configuration that is in force.
func (d *discovered) keep(text []byte) {
	d.kept.Store(false)
	d.applied = text
	if d.store != nil {
		d.store.Put(gateway.ConfigID, text)
	}
}

// translate makes listeners with the address of the node bind that of the Pod.
func (d *discovered) translate(plan *files.GatewayPlan) {
	own, err := netip.ParseAddr(os.Getenv(envAddress))
	if err != nil {
		return
	}
	for _, name := range stunnerd.Translated(&plan.Gateway, own.Unmap(), isLocal) {
		plan.Notes = append(plan.Notes, fmt.Sprintf("listener %s: its address is none of this host; sockets bind $%s, %v, and clients receive the configured one", name, envAddress, own))
	}
}

// isLocal reports whether an address is one of this host's.
func isLocal(address netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return address.IsLoopback() || slices.ContainsFunc(all, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr() == address
	})
}

// follow applies what the service sends until ctx ends. When the gateway begins to drain, it disconnects and waits for ctx.
func (l *gatewayLoop) follow(ctx context.Context) error {
	d := l.source.found
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-l.draining:
			stop()
		case <-watching.Done():
		}
	}()
	if d.watch {
		d.watcher.Log = l.log
		if err := d.watcher.Run(watching, func(text []byte) { l.received(d, text, l.log) }); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// received applies a configuration of the service. The notice that it was deleted has no effect, as in stunnerd under an operator: the
// Pod is about to be drained, and its clients go on until then.
func (l *gatewayLoop) received(d *discovered, text []byte, log *slog.Logger) {
	if stunnerd.IsDeleted(text) {
		log.Info("the configuration was deleted at the config discovery service; the last one stays in force", "id", d.watcher.ID.String())
		return
	}
	if bytes.Equal(text, d.applied) && l.now().Error == "" { // after each new connection
		d.kept.Store(false)
		return
	}
	if l.take(text, nil) {
		d.keep(text)
	}
}

// drains is called when the gateway begins to drain.
func (l *gatewayLoop) drains() {
	close(l.draining)
}
