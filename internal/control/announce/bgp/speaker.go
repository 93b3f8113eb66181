package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/weir-lb/weir/internal/control/announce"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Speaker is the announce.Driver of BGP.
type Speaker struct {
	log *slog.Logger

	// Apply's and Close's only:
	cancel context.CancelFunc // of the watching goroutines; nil: GoBGP does not run
	group  sync.WaitGroup
	paths  map[netip.Prefix]announced

	neighbouring sync.Mutex // guards peers, and what GoBGP has of them; taken before mu
	peers        map[netip.Addr]configured

	lost chan struct{} // a session of a neighbour with BFD was lost

	mu       sync.Mutex        // guards the rest
	server   *server.BgpServer // nil: GoBGP does not run
	settings *lb.BGP           // of server
	id       netip.Addr        // router id of server
	sessions map[netip.Addr]*session
	filtered []string
	prefixes map[bgp.Family]uint64 // announced ones
}

// configured is a neighbour as GoBGP has it.
type configured struct {
	lb.Neighbour
	password string
	is4, is6 bool
}

// announced is a path as GoBGP has it.
type announced struct {
	path     *apiutil.Path
	settings *lb.BGP
	state    announce.State
}

// New returns a speaker that does not run.
func New(log *slog.Logger) *Speaker {
	return &Speaker{log: cmp.Or(log, slog.New(slog.DiscardHandler)), lost: make(chan struct{}, 1)}
}

// Apply implements announce.Driver.
func (s *Speaker) Apply(settings *lb.Announce, routes []announce.Route) error {
	if settings == nil || settings.BGP == nil {
		s.Close()
		return nil
	}
	next := settings.BGP
	if s.server != nil && (s.settings.AS != next.AS || s.settings.RouterID != next.RouterID || s.settings.Listen != next.Listen) {
		s.log.Info("BGP starts again, for another AS, router id or listening address")
		s.Close()
	}
	if s.server == nil {
		if err := s.start(next); err != nil {
			return fmt.Errorf("start BGP: %w", err)
		}
	}
	s.mu.Lock()
	s.settings = next
	s.mu.Unlock()
	return errors.Join(s.applyPaths(next, routes), s.applyPeers(next), s.readBack())
}

// start starts GoBGP without neighbours.
func (s *Speaker) start(settings *lb.BGP) error {
	id, err := routerID(settings)
	if err != nil {
		return err
	}
	global := &api.Global{Asn: settings.AS, RouterId: id.String(), ListenPort: -1}
	if settings.Listen.IsValid() {
		global.ListenPort, global.ListenAddresses = int32(settings.Listen.Port()), []string{settings.Listen.Addr().String()}
	}
	level := &slog.LevelVar{}
	level.Set(slog.LevelWarn)
	running := server.NewBgpServer(server.LoggerOption(slog.New(quiet{s.log.Handler()}).With("component", "gobgp"), level))
	go running.Serve()
	ctx, cancel := context.WithCancel(context.Background())
	err = running.StartBgp(ctx, &api.StartBgpRequest{Global: global})
	if err == nil {
		err = importNothing(ctx, running)
	}
	if err == nil {
		err = running.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnPeerUpdate: s.event}, server.WatchPeer())
	}
	if err != nil {
		cancel()
		running.Stop()
		return err
	}
	s.cancel, s.peers, s.paths = cancel, map[netip.Addr]configured{}, map[netip.Prefix]announced{} // there is no monitor yet
	s.mu.Lock()
	s.server, s.settings, s.id, s.sessions, s.filtered = running, settings, id, map[netip.Addr]*session{}, nil
	s.mu.Unlock()
	s.group.Go(func() { s.monitor(ctx, running) })
	return nil
}

// routerID is the configured router id, or this machine's address towards the first IPv4 neighbour to which there is a route.
func routerID(settings *lb.BGP) (id netip.Addr, err error) {
	if settings.RouterID.IsValid() {
		return settings.RouterID, nil
	}
	for _, n := range settings.Neighbours {
		switch {
		case !n.Address.Is4():
			continue
		case n.LocalAddress.IsValid():
			return n.LocalAddress, nil
		}
		c, dialled := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.Address, n.Port))) // asks for the route, and sends nothing
		if dialled != nil {
			err = errors.Join(err, dialled)
			continue
		}
		local := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		return local, c.Close()
	}
	return id, fmt.Errorf("no router id: this machine has no route to a neighbour; write announce.bgp.router_id: %w", err)
}

// importNothing lets local paths into the table, and no others.
func importNothing(ctx context.Context, running *server.BgpServer) error {
	local := &api.Policy{Name: "local", Statements: []*api.Statement{{
		Name: "local", Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions: &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}}}
	if err := running.AddPolicy(ctx, &api.AddPolicyRequest{Policy: local}); err != nil {
		return err
	}
	return running.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT, Policies: []*api.Policy{local}, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
}

// Close implements announce.Driver: it closes the sessions, by which neighbours withdraw everything.
func (s *Speaker) Close() {
	if s.server == nil {
		return
	}
	s.server.Stop()
	s.cancel()
	s.group.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server, s.settings, s.sessions, s.filtered = nil, nil, nil, nil
}

// applyPaths adds, changes and withdraws paths. Withdrawals are first: they are urgent.
func (s *Speaker) applyPaths(settings *lb.BGP, routes []announce.Route) error {
	wanted := map[netip.Prefix]announce.Route{}
	for _, r := range routes {
		if r.State != announce.Withdrawn {
			wanted[r.Prefix] = r
		}
	}
	var gone []*apiutil.Path
	for prefix, had := range s.paths {
		if _, ok := wanted[prefix]; !ok {
			gone = append(gone, had.path)
			delete(s.paths, prefix)
		}
	}
	var errs []error
	if len(gone) > 0 {
		if err := s.server.DeletePath(apiutil.DeletePathRequest{Paths: gone}); err != nil {
			errs = append(errs, fmt.Errorf("withdraw: %w", err))
		}
	}
	var added []*apiutil.Path
	for prefix, r := range wanted {
		had, ok := s.paths[prefix]
		if ok && had.state == r.State && sameAttributes(had.settings, settings) {
			continue
		}
		path, err := pathOf(settings, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("announce %s: %w", prefix, err))
			continue
		}
		added = append(added, path)
		s.paths[prefix] = announced{path, settings, r.State}
	}
	if len(added) > 0 {
		if _, err := s.server.AddPath(apiutil.AddPathRequest{Paths: added}); err != nil {
			errs = append(errs, fmt.Errorf("announce: %w", err))
			s.paths = map[netip.Prefix]announced{} // all are added again
		}
	}
	return errors.Join(errs...)
}

// sameAttributes reports whether paths are the same under both settings.
func sameAttributes(a, b *lb.BGP) bool {
	return a.AS == b.AS && a.NextHop4 == b.NextHop4 && a.NextHop6 == b.NextHop6 && a.Prepends == b.Prepends && a.LocalPreference == b.LocalPreference &&
		slices.Equal(a.Communities, b.Communities)
}

// applyPeers adds, changes and removes neighbours.
func (s *Speaker) applyPeers(settings *lb.BGP) error {
	s.neighbouring.Lock()
	defer s.neighbouring.Unlock()
	var errs []error
	wanted := map[netip.Addr]configured{}
	for i := range settings.Neighbours {
		n := &settings.Neighbours[i]
		password, err := Password(n)
		if err != nil {
			errs = append(errs, err)
			if had, ok := s.peers[n.Address]; ok {
				wanted[n.Address] = had // it goes on with what it has
			}
			continue
		}
		wanted[n.Address] = configured{
			*n, password, n.Address.Is4() || settings.NextHop4.IsValid(), n.Address.Is6() || settings.NextHop6.IsValid(),
		}
	}
	for address, had := range s.peers {
		if want, ok := wanted[address]; ok && want == had {
			continue
		}
		if err := s.server.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: address.String()}); err != nil {
			errs = append(errs, fmt.Errorf("remove neighbour %s: %w", address, err))
		}
		delete(s.peers, address)
		s.forget(address)
	}
	for address, want := range wanted {
		if _, ok := s.peers[address]; ok {
			continue
		}
		s.remember(&want.Neighbour)
		if err := s.server.AddPeer(context.Background(), &api.AddPeerRequest{Peer: want.peer()}); err != nil {
			errs = append(errs, fmt.Errorf("add neighbour %s: %w", address, err))
			s.forget(address)
			continue
		}
		s.peers[address] = want
	}
	return errors.Join(errs...)
}

// readBack finds paths that GoBGP did not take: AddPath returns no error for those that a policy drops.
func (s *Speaker) readBack() error {
	have := map[netip.Prefix]bool{}
	for _, family := range []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_IPv6_UC} {
		err := s.server.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family}, func(nlri bgp.NLRI, _ []*apiutil.Path) {
			if prefix, err := netip.ParsePrefix(nlri.String()); err == nil {
				have[prefix] = true
			}
		})
		if err != nil {
			return fmt.Errorf("read the announced paths back: %w", err)
		}
	}
	var filtered []string
	for prefix := range s.paths {
		if !have[prefix] {
			filtered = append(filtered, prefix.String())
		}
	}
	slices.Sort(filtered)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(filtered) > 0 && !reflect.DeepEqual(filtered, s.filtered) {
		s.log.Error("prefixes are not announced: a policy of the BGP speaker drops them", "prefixes", filtered)
	}
	s.filtered = filtered
	s.prefixes = map[bgp.Family]uint64{}
	for prefix := range s.paths {
		if have[prefix] {
			s.prefixes[familyOf(prefix.Addr().Is4())]++
		}
	}
	return nil
}

// quiet drops what GoBGP logs below warnings, unless everything is logged; sessions are logged here.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return (level >= slog.LevelWarn || q.Handler.Enabled(ctx, slog.LevelDebug)) && q.Handler.Enabled(ctx, level)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }

// now is the time of events. Sessions are told by wall time.
func now() time.Time { return time.Now() }
