package bgp

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"github.com/weir-lb/weir/internal/readfile"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// maxPassword is the longest key of TCP MD5 that Linux takes.
const maxPassword = 80

// Password reads the password of a neighbour; empty: it has none.
func Password(n *lb.Neighbour) (string, error) {
	password := ""
	switch {
	case n.PasswordFile != "":
		text, err := readfile.Read(n.PasswordFile, 4096)
		if err != nil {
			return "", fmt.Errorf("read the password of neighbour %s: %w", n.Address, err)
		}
		password = strings.TrimRight(string(text), "\r\n")
	case n.PasswordEnv != "":
		password = os.Getenv(n.PasswordEnv)
	default:
		return "", nil
	}
	switch {
	case password == "":
		return "", fmt.Errorf("the password of neighbour %s is empty; write it into %s", n.Address, whereOf(n))
	case len(password) > maxPassword:
		return "", fmt.Errorf("the password of neighbour %s has %d bytes; TCP MD5 takes at most %d", n.Address, len(password), maxPassword)
	}
	return password, nil
}

func whereOf(n *lb.Neighbour) string {
	if n.PasswordFile != "" {
		return n.PasswordFile
	}
	return "the environment variable " + n.PasswordEnv
}

// peer is a neighbour as GoBGP wants it.
func (c *configured) peer() *api.Peer {
	n, is4, is6 := &c.Neighbour, c.is4, c.is6
	peer := &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: n.Address.String(), PeerAsn: n.AS, AuthPassword: c.password},
		Timers: &api.Timers{Config: &api.TimersConfig{
			ConnectRetry: 1, IdleHoldTimeAfterReset: 1, HoldTime: uint64(n.HoldTime / time.Second), KeepaliveInterval: uint64(n.HoldTime / time.Second / 3),
		}},
		Transport: &api.Transport{RemotePort: uint32(n.Port)},
	}
	if n.LocalAddress.IsValid() {
		peer.Transport.LocalAddress = n.LocalAddress.String()
	}
	if n.Multihop > 0 {
		peer.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(n.Multihop)}
	}
	if n.TTLSecurity {
		peer.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: 255}
	}
	if n.BFD.Multiplier > 0 {
		interval := uint32(n.BFD.Interval / time.Microsecond)
		peer.Bfd = &api.BfdPeerConfig{Enabled: true, DesiredMinimumTxInterval: interval, RequiredMinimumReceive: interval, DetectionMultiplier: uint32(n.BFD.Multiplier)}
	}
	for _, afi := range []struct {
		on  bool
		afi api.Family_Afi
	}{{is4, api.Family_AFI_IP}, {is6, api.Family_AFI_IP6}} {
		if !afi.on {
			continue
		}
		family := &api.Family{Afi: afi.afi, Safi: api.Family_SAFI_UNICAST}
		peer.AfiSafis = append(peer.AfiSafis, &api.AfiSafi{
			Config:       &api.AfiSafiConfig{Family: family, Enabled: true},
			PrefixLimits: &api.PrefixLimit{Family: family, MaxPrefixes: n.PrefixLimit},
		})
	}
	return peer
}
