package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// MaxPeers bounds the balancers that share the state of flows with one.
const MaxPeers = 8

// sync compiles the sync section, once the services are compiled.
func (c *compiler) sync(spec *Spec, snapshot *Snapshot) error {
	s := spec.Sync
	if s == nil {
		return nil
	}
	out := &Sync{Listen: unmapped(s.Listen), KeyFile: s.KeyFile, KeyEnv: s.KeyEnv, HoldOff: cmp.Or(s.HoldOff, 3*time.Second)}
	switch {
	case !c.caps.Sync:
		return wrong("sync", "use --datapath ebpf, or remove sync", "data path %s does not share the state of flows", c.caps.Name)
	case !s.Listen.IsValid() || s.Listen.Port() == 0:
		return wrong("sync.listen", "write an address of this machine and a port, such as 10.0.0.1:8477", "there is no address that peers connect to")
	case s.Listen.Addr().IsMulticast():
		return wrong("sync.listen", "write an address of this machine", "%s is a multicast address", s.Listen)
	case len(s.Peers) == 0:
		return wrong("sync.peers", "add what the other balancer has as sync.listen", "there is no peer")
	case len(s.Peers) > MaxPeers:
		return wrong("sync.peers", "share state in smaller groups", "%d peers, at most %d", len(s.Peers), MaxPeers)
	case s.KeyFile == "" && s.KeyEnv == "":
		return wrong("sync.key_file", "write a key with openssl rand -hex 32 into a file, the same on all peers, and its path here", "there is no key")
	case s.KeyFile != "" && s.KeyEnv != "":
		return wrong("sync.key_env", "remove one", "the key is in a file and in a variable")
	case strings.ContainsAny(s.KeyEnv, "= "):
		return wrong("sync.key_env", "write the name of an environment variable, such as WEIR_SYNC_KEY", "%q is no name of a variable", s.KeyEnv)
	case s.HoldOff < 0 || s.HoldOff > 5*time.Minute:
		return wrong("sync.hold_off", "write 0s to 5m, such as 3s", "%s is out of range", s.HoldOff)
	case !slices.ContainsFunc(snapshot.Services, func(s *Service) bool { return s.Mode == NAT }):
		return wrong("sync", "remove sync", "no service has mode nat; in other modes equal tables give equal decisions, without state")
	}
	for i, peer := range s.Peers {
		path, peer := fmt.Sprintf("sync.peers[%d]", i), unmapped(peer)
		switch {
		case !peer.IsValid() || peer.Port() == 0 || peer.Addr().IsUnspecified() || peer.Addr().IsMulticast():
			return wrong(path, "write the address and port that the other balancer has as sync.listen", "%s is no address of a peer", s.Peers[i])
		case peer == out.Listen:
			return wrong(path, "remove it", "%s is this balancer", peer)
		case slices.ContainsFunc(out.Peers, func(other netip.AddrPort) bool { return other.Addr() == peer.Addr() }):
			return wrong(path, "remove one", "%s is the address of a peer twice", peer.Addr())
		}
		out.Peers = append(out.Peers, peer)
	}
	snapshot.Sync = out
	return nil
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
