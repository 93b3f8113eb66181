package nat

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// natAddresses splits the arguments. What follows "--" may hold flags too, as with cf-nat.
func natAddresses(cmd *cobra.Command, args []string) (listen, destinations []string, err error) {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 {
		dash = min(1, len(args))
	}
	listen = args[:dash]
	if err := cmd.Flags().Parse(args[dash:]); err != nil {
		return nil, nil, err
	}
	destinations = cmd.Flags().Args()
	switch {
	case len(listen) == 0:
		return nil, nil, errors.New("no address to listen on; write for instance weir nat :5784 localhost:5684")
	case len(destinations) == 0:
		return nil, nil, errors.New("no destination; write for instance weir nat :5784 localhost:5684")
	}
	return listen, destinations, nil
}

// natFlagError names the flags that stand for Californium's, which have one dash.
func natFlagError(cmd *cobra.Command, err error) error {
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		for theirs, ours := range map[string]string{"tnat=": "--nat-timeout", "tlb=": "--destination-timeout", "tln=": "--destination-timeout"} {
			if milliseconds, ok := strings.CutPrefix(unknown.GetSpecifiedShortnames(), theirs); ok {
				err = fmt.Errorf("-%s%s is cf-nat's; write %s %sms", theirs, milliseconds, ours, milliseconds)
			}
		}
	}
	return cmd.Root().FlagErrorFunc()(cmd, err)
}

// natSpec returns the one service that the arguments describe.
func natSpec(ctx context.Context, f *natFlags, listen, destinations []string) (lb.Spec, error) {
	service := lb.ServiceSpec{Name: "nat", Timeouts: lb.TimeoutsSpec{UDP: lb.Timeout(f.natTimeout)}}
	if f.natTimeout == 0 {
		service.Timeouts.UDP = lb.Timeout(lb.Never)
	}
	for _, text := range listen {
		at, err := resolveListen(ctx, text)
		if err != nil {
			return lb.Spec{}, err
		}
		service.VIPs = append(service.VIPs, udpnat.ListenSpec(at)...)
	}
	if f.affinity == "source" {
		affinity := lb.BySource
		service.Affinity = &affinity
	}
	if f.cidLength > 0 {
		if f.affinity == "source" {
			return lb.Spec{}, errors.New("--cid-length excludes --affinity source")
		}
		var protocol lb.CIDProtocol
		if err := protocol.UnmarshalText([]byte("dtls12")); err != nil {
			return lb.Spec{}, err
		}
		service.CID = &lb.CIDSpec{
			Protocols: []lb.CIDProtocol{protocol},
			Layouts:   []lb.LayoutSpec{{Length: f.cidLength, Owner: &lb.BitsSpec{Offset: 0, Bits: 8}}},
		}
		if len(f.nodes) == 0 && len(f.cluster) == 0 {
			for i := range destinations {
				f.nodes = append(f.nodes, uint(i+1))
			}
		}
		if len(f.cluster) == 0 && len(f.nodes) != len(destinations) {
			return lb.Spec{}, fmt.Errorf("--node-ids: %d node ids for %d destinations", len(f.nodes), len(destinations))
		}
	}
	for i, text := range destinations {
		addr, err := resolveUDP(ctx, text)
		if err != nil {
			return lb.Spec{}, err
		}
		backend := udpnat.BackendSpec(text, addr)
		if len(f.nodes) > 0 {
			backend.Nodes = []uint32{uint32(f.nodes[i])}
		}
		service.Backends = append(service.Backends, backend)
	}
	f.follow(&service)
	var key lb.HexKey
	if seed := f.config.Faults.Seed; seed != 0 {
		binary.BigEndian.PutUint64(key[:], seed)
	} else if _, err := rand.Read(key[:]); err != nil {
		return lb.Spec{}, err
	}
	return lb.Spec{HashKey: &key, Services: []lb.ServiceSpec{service}}, nil
}

// resolveListen reads HOST:PORT, or :PORT for every address.
func resolveListen(ctx context.Context, text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err == nil && host == "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return netip.AddrPort{}, fmt.Errorf("listen address %q: write a port from 1 to 65535", text)
		}
		return netip.AddrPortFrom(netip.Addr{}, uint16(n)), nil
	}
	return resolveUDP(ctx, text)
}

// resolveUDP turns HOST:PORT into an address, IPv4 before IPv6 where a name has both.
func resolveUDP(ctx context.Context, text string) (netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q: write HOST:PORT, such as localhost:5684 or [::1]:5684", text)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q: write a port from 1 to 65535", text)
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(addrs) == 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q: %w", text, err)
	}
	best := addrs[0].Unmap()
	for _, a := range addrs {
		if a.Unmap().Is4() {
			best = a.Unmap()
			break
		}
	}
	return netip.AddrPortFrom(best, uint16(port)), nil
}
