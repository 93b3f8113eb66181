package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// session is what is known of the session with one neighbour.
type session struct {
	established bool
	since       time.Time // established, lost, or configured
	losses      uint64
	ended       string    // why the last one ended; empty: there was none
	limited     time.Time // it sent too many prefixes; zero: it did not
	bfd         bool      // the neighbour has BFD
	renew       bool      // it is to be added to GoBGP again
	reported    string    // the problem that was logged last
}

const (
	monitorEvery = time.Second
	// limitWait is how long a neighbour that sent too many prefixes waits for its next session.
	limitWait = time.Minute
)

func (s *Speaker) remember(n *lb.Neighbour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[n.Address] = &session{since: now(), bfd: n.BFD.Multiplier > 0}
}

func (s *Speaker) forget(address netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, address)
}

// event is called by GoBGP at each change of a session. The first event has no neighbour.
func (s *Speaker) event(event *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
	if event.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	state := &event.Peer.State
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sessions[state.NeighborAddress]
	if one == nil {
		return
	}
	if state.AdminState == api.PeerState_ADMIN_STATE_PFX_CT && one.limited.IsZero() {
		one.limited = now()
	}
	switch up := state.SessionState == bgp.BGP_FSM_ESTABLISHED; {
	case up && !one.established:
		one.established, one.since, one.limited = true, now(), time.Time{}
		s.log.Info("BGP session established", "neighbour", state.NeighborAddress.String(), "as", state.PeerASN)
	case !up && one.established:
		one.established, one.since = false, now()
		one.losses++
		one.ended, one.renew = reasonOf(state), one.bfd
		select {
		case s.lost <- struct{}{}:
		default:
		}
		s.log.Warn("BGP session lost", "neighbour", state.NeighborAddress.String(), "as", state.PeerASN, "reason", one.ended)
	case !up && state.DisconnectReason != api.PeerState_DISCONNECT_REASON_UNSPECIFIED:
		one.ended = reasonOf(state)
	}
}

func reasonOf(state *apiutil.PeerState) string {
	if state.DisconnectReason == api.PeerState_DISCONNECT_REASON_UNSPECIFIED && state.DisconnectMessage == "" {
		return "the connection or BFD"
	}
	reason := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(state.DisconnectReason.String(), "DISCONNECT_REASON_"), "_", " "))
	if state.DisconnectMessage != "" {
		reason += ": " + state.DisconnectMessage
	}
	return reason
}

// monitor logs problems, and ends the wait of neighbours that have sent too many prefixes, until ctx ends.
func (s *Speaker) monitor(ctx context.Context, running *server.BgpServer) {
	ticker := time.NewTicker(monitorEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.lost:
			s.renew(ctx, running)
			continue
		case <-ticker.C:
		}
		s.renew(ctx, running)
		for _, n := range s.neighbours(running) {
			s.report(n)
		}
		for _, address := range s.waited() {
			if err := running.EnablePeer(ctx, &api.EnablePeerRequest{Address: address.String()}); err != nil {
				s.log.Error("open the BGP session again", "neighbour", address.String(), "error", err)
			}
		}
	}
}

// renew removes neighbours with BFD whose session was lost from GoBGP, and adds them again. Left alone, BFD of GoBGP 4.8.0 finds out later that
// the neighbour is gone, asks for a reset, and the next session ends by that as soon as it is established. With that, BFD of the neighbour
// ends, and so on for ever.
func (s *Speaker) renew(ctx context.Context, running *server.BgpServer) {
	if !s.neighbouring.TryLock() { // a change is under way, and Close may wait for this goroutine: in a second
		return
	}
	defer s.neighbouring.Unlock()
	s.mu.Lock()
	var again []configured
	for address, one := range s.sessions {
		if had, ok := s.peers[address]; ok && one.renew {
			again = append(again, had)
		}
		one.renew = false
	}
	s.mu.Unlock()
	for _, c := range again {
		err := running.DeletePeer(ctx, &api.DeletePeerRequest{Address: c.Address.String()})
		if err == nil {
			err = running.AddPeer(ctx, &api.AddPeerRequest{Peer: c.peer()})
		}
		if err != nil {
			s.log.Error("open the BGP session again", "neighbour", c.Address.String(), "error", err)
			delete(s.peers, c.Address) // the next change of the announcements adds it
		}
	}
}

// report logs a problem when it begins, changes or ends.
func (s *Speaker) report(n v1.BGPNeighbour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	address, err := netip.ParseAddr(n.Address)
	one := s.sessions[address]
	if err != nil || one == nil {
		return
	}
	kind, _, _ := strings.Cut(n.Problem, " for ") // without the time that passes
	if kind == one.reported {
		return
	}
	one.reported = kind
	if kind != "" {
		s.log.Warn("BGP needs attention", "neighbour", n.Address, "as", n.AS, "problem", n.Problem)
	}
}

// waited returns the neighbours whose wait is over.
func (s *Speaker) waited() (all []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, one := range s.sessions {
		if !one.limited.IsZero() && now().Sub(one.limited) > limitWait {
			one.limited = time.Time{}
			all = append(all, address)
		}
	}
	return all
}

// Describe implements announce.Driver.
func (s *Speaker) Describe(status *v1.AnnounceStatus) {
	s.mu.Lock()
	running, settings, id, filtered := s.server, s.settings, s.id, s.filtered
	s.mu.Unlock()
	if running == nil {
		return
	}
	status.BGP = &v1.BGPStatus{AS: settings.AS, RouterID: id.String(), Filtered: filtered, Neighbours: s.neighbours(running)}
	if settings.Listen.IsValid() {
		status.BGP.Listen = settings.Listen.String()
	}
}

// neighbours describes the sessions, in the order of the configuration.
func (s *Speaker) neighbours(running *server.BgpServer) []v1.BGPNeighbour {
	peers := map[string]*api.Peer{}
	// An error leaves states unknown: GoBGP is about to end.
	_ = running.ListPeer(context.Background(), &api.ListPeerRequest{EnableAdvertised: true}, func(p *api.Peer) { peers[p.GetConf().GetNeighborAddress()] = p })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != running {
		return nil
	}
	var all []v1.BGPNeighbour
	for i := range s.settings.Neighbours {
		n := &s.settings.Neighbours[i]
		one, peer := s.sessions[n.Address], peers[n.Address.String()]
		if one == nil {
			one = &session{}
		}
		described := v1.BGPNeighbour{Address: n.Address.String(), AS: n.AS, State: stateOf(peer), Since: one.since, Losses: one.losses}
		unsent := ""
		for _, family := range peer.GetAfiSafis() {
			sent := family.GetState().GetAdvertised()
			described.Advertised += sent
			described.Received += family.GetState().GetReceived()
			if all := s.prefixes[apiutil.ToFamily(family.GetConfig().GetFamily())]; sent < all {
				unsent = fmt.Sprintf("%d of %d %s prefixes are not sent: turn the address family %[3]s unicast on at the neighbour", all-sent, all, nameOf(family))
			}
		}
		if n.BFD.Multiplier > 0 {
			described.BFD = strings.ToLower(strings.TrimPrefix(peer.GetState().GetBfdState().GetSessionState().String(), "BFD_SESSION_STATE_"))
		}
		described.Problem = problemOf(n, one, &described, s.settings, unsent)
		all = append(all, described)
	}
	return all
}

func nameOf(family *api.AfiSafi) string {
	if family.GetConfig().GetFamily().GetAfi() == api.Family_AFI_IP {
		return "IPv4"
	}
	return "IPv6"
}

func stateOf(peer *api.Peer) string {
	switch state := peer.GetState().GetSessionState(); state {
	case api.PeerState_SESSION_STATE_UNSPECIFIED:
		return "idle"
	case api.PeerState_SESSION_STATE_OPENSENT:
		return "open_sent"
	case api.PeerState_SESSION_STATE_OPENCONFIRM:
		return "open_confirm"
	default:
		return strings.ToLower(strings.TrimPrefix(state.String(), "SESSION_STATE_"))
	}
}

// problemOf is what an operator should look at; empty: nothing. BGP has no error for a wrong password: segments are dropped.
func problemOf(n *lb.Neighbour, one *session, d *v1.BGPNeighbour, settings *lb.BGP, unsent string) string {
	quiet := now().Sub(one.since)
	switch {
	case !one.limited.IsZero():
		return fmt.Sprintf("the neighbour sent more than %d prefixes, so the session is closed; let it send fewer, or raise prefix_limit", n.PrefixLimit)
	case !one.established && quiet >= settings.ReportAfter:
		text := fmt.Sprintf("not established for %d s: is %s reachable from here at TCP port %d, does it expect AS %d from this address, is it in AS %d, and is no filter in between", quiet/time.Second, n.Address, n.Port, settings.AS, n.AS)
		if n.PasswordFile != "" || n.PasswordEnv != "" {
			text += "; is the password the same on both sides: a wrong one gives no error"
		} else {
			text += "; does it want a password"
		}
		if one.ended != "" {
			text += "; the last session ended by " + one.ended
		}
		return text
	case one.established && quiet >= settings.ReportAfter && unsent != "":
		return unsent
	case one.established && d.BFD != "" && d.BFD != "up" && quiet >= settings.ReportAfter:
		return fmt.Sprintf("BFD is %s: is BFD on at the neighbour for this address, and does UDP port 3784 pass", d.BFD)
	}
	return ""
}
