package netlab_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// pair is two hosts on one wire.
func pair(name string) netlab.Topology {
	return netlab.Topology{
		Name:       name,
		Namespaces: []netlab.Namespace{{Name: "a"}, {Name: "b"}},
		Links:      []netlab.Link{netlab.Cable("a eth0 10.1.0.1/24 fd01::1/64", "b eth0 10.1.0.2/24 fd01::2/64")},
	}
}

// echo answers one datagram to address in server and sends it from client; it returns the address the server saw.
func echo(t *testing.T, client, server *netlab.Host, address string) netip.Addr {
	t.Helper()
	var listener, conn net.PacketConn
	if err := server.Do(func() (err error) {
		listener, err = net.ListenPacket("udp", net.JoinHostPort(address, "7"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := client.Do(func() (err error) {
		conn, err = net.ListenPacket("udp", ":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	seen := make(chan netip.Addr, 1)
	go func() {
		buffer := make([]byte, 16)
		for {
			n, from, err := listener.ReadFrom(buffer)
			if err != nil {
				return
			}
			if string(buffer[:n]) == "weir" {
				_, _ = listener.WriteTo([]byte("riew"), from) // one that cannot leave is requested again
				select {
				case seen <- from.(*net.UDPAddr).AddrPort().Addr().Unmap():
				default:
				}
			}
		}
	}()
	buffer := make([]byte, 16)
	for end := time.Now().Add(20 * time.Second); ; {
		if _, err := conn.WriteTo([]byte("weir"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 7))); err != nil {
			t.Fatalf("send to %s: %v", address, err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second)) // a busy machine may drop one
		n, _, err := conn.ReadFrom(buffer)
		if err == nil && string(buffer[:n]) == "riew" {
			return <-seen
		}
		if err == nil || time.Now().After(end) {
			t.Fatalf("client of %s read %q, %v", address, buffer[:n], err)
		}
	}
}

func TestRootPairEchoesOverBothFamilies(t *testing.T) {
	lab := netlabtest.Up(t, pair("pair"))
	a, b := lab.Namespace("a"), lab.Namespace("b")
	for address, want := range map[string]string{"10.1.0.2": "10.1.0.1", "fd01::2": "fd01::1"} {
		if from := echo(t, a, b, address); from.String() != want {
			t.Errorf("server on %s saw %v, want %s", address, from, want)
		}
	}
}

func TestRootRouterBridgeMacvlanRulesAndSysctls(t *testing.T) {
	lab := netlabtest.Up(t, netlab.Topology{
		Name: "wide",
		Namespaces: []netlab.Namespace{
			{Name: "client", Routes: netlab.Default("10.1.0.254", "fd01::fe")},
			{
				Name: "router", Forward: true,
				Bridges: []netlab.Bridge{{Name: "br0", Addresses: netlab.Prefixes("10.2.0.254/24", "fd02::fe/64")}},
				Routes:  []netlab.Route{{To: netip.MustParsePrefix("192.0.2.1/32"), Via: netip.MustParseAddr("10.2.0.1"), Table: 100}},
				Rules:   []netlab.Rule{{To: netip.MustParsePrefix("192.0.2.1/32"), Table: 100}},
				Sysctls: []netlab.Sysctl{{Key: "net.ipv4.conf.br0.rp_filter", Value: "2"}},
			},
			{
				Name: "server", Loopback: netlab.Prefixes("192.0.2.1/32"),
				Macvlans: []netlab.Macvlan{{Name: "mac0", Parent: "eth0", Addresses: netlab.Prefixes("10.2.0.3/24")}},
				Routes: []netlab.Route{
					netlab.Via("10.1.0.0/24", "10.2.0.254"),
					netlab.Via("fd01::/64", "fd02::fe"),
				},
			},
		},
		Links: []netlab.Link{
			netlab.Cable("client eth0 10.1.0.1/24 fd01::1/64", "router north 10.1.0.254/24 fd01::fe/64"),
			{
				A:   netlab.End{Namespace: "router", Name: "south", Bridge: "br0"},
				B:   netlab.End{Namespace: "server", Name: "eth0", Addresses: netlab.Prefixes("10.2.0.1/24", "fd02::1/64"), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}},
				MTU: 1400, Queues: 2,
			},
		},
	})
	client, router, server := lab.Namespace("client"), lab.Namespace("router"), lab.Namespace("server")
	for _, address := range []string{"10.2.0.1", "fd02::1", "192.0.2.1", "10.2.0.3"} {
		echo(t, client, server, address)
	}
	if _, mac, err := server.Interface("eth0"); err != nil || mac != [6]byte{2, 0, 0, 0, 0, 9} {
		t.Errorf("server eth0 has MAC %x, %v", mac, err)
	}
	got, err := router.Exec(t.Context(), "cat", "/proc/sys/net/ipv4/conf/br0/rp_filter")
	if err != nil || strings.TrimSpace(got) != "2" {
		t.Errorf("rp_filter of br0 is %q, %v", got, err)
	}
	got, err = server.Exec(t.Context(), "cat", "/proc/net/dev")
	if err != nil || !strings.Contains(got, "mac0:") || !strings.Contains(got, "eth0:") || strings.Contains(got, "north:") {
		t.Errorf("interfaces of server:\n%s%v", got, err)
	}
}

// A lab shows what a user's machine does, so links keep the offloads that the kernel gives a veth.
func TestRootLinksKeepDefaultOffloads(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "ethtool", "ip")
	lab := netlabtest.Up(t, pair("offloads"))
	a := lab.Namespace("a")
	if _, err := a.Exec(t.Context(), "ip", "link", "add", "plain0", "type", "veth", "peer", "name", "plain1"); err != nil {
		t.Fatal(err)
	}
	features := func(name string) string {
		out, err := a.Exec(t.Context(), "ethtool", "-k", name)
		if err != nil {
			t.Fatal(err)
		}
		_, list, _ := strings.Cut(out, "\n")
		return list
	}
	made, plain := features("eth0"), features("plain0")
	if made != plain {
		t.Errorf("features of a netlab link:\n%s\nof a veth made by ip:\n%s", made, plain)
	}
	if !strings.Contains(made, "tcp-segmentation-offload: on") || !strings.Contains(made, "tx-checksumming: on") {
		t.Errorf("segmentation or checksum offload is off:\n%s", made)
	}
}

func TestRootDownEndsProcessesAndIsIdempotent(t *testing.T) {
	lab := netlabtest.Up(t, pair("down"))
	host := lab.Namespace("a")
	cmd := exec.Command("sleep", "600")
	if err := host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	if err := lab.Down(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err == nil {
		t.Error("the process inside ended by itself")
	}
	if _, err := os.Stat(filepath.Join("/run/netns", host.NetNS())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("namespace is still bound: %v", err)
	}
	if err := lab.Down(); err != nil {
		t.Errorf("second Down: %v", err)
	}
}

func TestRootKeptLabIsFoundAgainAndExclusive(t *testing.T) {
	netlabtest.Root(t)
	topology := pair("kept-test")
	if _, err := netlab.Remove(topology.Name); err != nil { // of a run that was killed
		t.Fatal(err)
	}
	lab, err := netlab.Up(topology, netlab.Keep())
	if err != nil {
		t.Fatal(err)
	}
	lab.Close()
	if _, err := netlab.Up(topology, netlab.Keep()); err == nil {
		t.Error("a second kept lab of the same name came up")
	}
	again, err := netlab.Open(topology)
	if err != nil {
		t.Fatalf("after a refused second Up: %v", err)
	}
	echo(t, again.Namespace("a"), again.Namespace("b"), "10.1.0.2")
	again.Close()
	if names, err := netlab.Kept(); err != nil || !slices.Contains(names, topology.Name) {
		t.Errorf("kept labs are %v, %v", names, err)
	}
	if removed, err := netlab.Remove(topology.Name); err != nil || len(removed) != 2 {
		t.Errorf("removed %v, %v", removed, err)
	}
	if _, err := netlab.Open(topology); err == nil {
		t.Error("a lab that is down was opened")
	}
}

// A run that is killed leaves its namespaces and their processes; the next Up removes them and no one else's.
func TestRootSweepRemovesLabsOfDeadProcesses(t *testing.T) {
	netlabtest.Root(t)
	if os.Getenv("WEIR_NETLAB_CRASH") == "1" {
		lab, err := netlab.Up(pair("crash"))
		if err != nil {
			t.Fatal(err)
		}
		if err := lab.Namespace("a").Start(exec.Command("sleep", "600")); err != nil {
			t.Fatal(err)
		}
		// Looked at while we live: any other process that makes a lab may sweep it afterwards.
		if _, err := os.Stat(filepath.Join("/run/netns", lab.Namespace("a").NetNS())); err == nil {
			os.Stdout.WriteString("left " + lab.Namespace("a").NetNS() + "\n")
		}
		os.Exit(0) // as a crash: no cleanup runs
	}
	alive := netlabtest.Up(t, pair("alive"))

	crash := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRootSweepRemovesLabsOfDeadProcesses$")
	crash.Env = append(os.Environ(), "WEIR_NETLAB_CRASH=1")
	out, err := crash.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, rest, _ := strings.Cut(string(out), "left ")
	left := filepath.Join("/run/netns", strings.TrimSpace(rest))
	if rest == "" {
		t.Fatalf("the crashed run left nothing: %s", out)
	}
	netlabtest.Up(t, pair("after"))
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", left, err)
	}
	echo(t, alive.Namespace("a"), alive.Namespace("b"), "10.1.0.2")
}

func TestRootFailedUpLeavesNothing(t *testing.T) {
	netlabtest.Root(t)
	bad := pair("halfway")
	bad.Namespaces[1].Sysctls = []netlab.Sysctl{{Key: "net.ipv4.no_such_key", Value: "1"}}
	if lab, err := netlab.Up(bad); err == nil {
		_ = lab.Down()
		t.Fatal("a sysctl that does not exist was accepted")
	} else if !strings.Contains(err.Error(), "net.ipv4.no_such_key") {
		t.Errorf("the error does not name the key: %v", err)
	}
	left, _ := filepath.Glob("/run/netns/weirlab-halfway.*")
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRootExecEndsWithItsContext(t *testing.T) {
	lab := netlabtest.Up(t, pair("exec"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lab.Namespace("a").Exec(ctx, "sleep", "600"); err == nil {
		t.Error("a cancelled program reported success")
	}
}

func TestValidateNamesThePath(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	cases := map[string]struct {
		change func(*netlab.Topology)
		want   string
	}{
		"name":    {func(t *netlab.Topology) { t.Name = "No Good" }, `name: "No Good"`},
		"twice":   {func(t *netlab.Topology) { t.Namespaces[1].Name = "a" }, `namespaces[1].name: "a" is used twice`},
		"unknown": {func(t *netlab.Topology) { t.Links[0].B.Namespace = "c" }, `links[0].b.namespace: no namespace "c"`},
		"long":    {func(t *netlab.Topology) { t.Links[0].A.Name = "abcdefghijklmnop" }, `links[0].a.name: interface name`},
		"same":    {func(t *netlab.Topology) { t.Links = append(t.Links, t.Links[0]) }, `links[1].a.name: namespace "a" has two interfaces "eth0"`},
		"mtu":     {func(t *netlab.Topology) { t.Links[0].MTU = 20 }, `links[0].mtu: 20`},
		"address": {func(t *netlab.Topology) { t.Links[0].A.Addresses[1] = netip.Prefix{} }, `links[0].a.addresses[1]: not an address`},
		"bridge":  {func(t *netlab.Topology) { t.Links[0].A.Bridge = "br9" }, `links[0].a.bridge: namespace "a" has no bridge "br9"`},
		"route":   {func(t *netlab.Topology) { t.Namespaces[0].Routes = []netlab.Route{{Dev: "eth0"}} }, `namespaces[0].routes[0].to: not a prefix`},
		"route family": {func(t *netlab.Topology) {
			t.Namespaces[0].Routes = []netlab.Route{netlab.Via("::/0", "10.1.0.2")}
		}, `namespaces[0].routes[0].via: 10.1.0.2`},
		"rule": {func(t *netlab.Topology) { t.Namespaces[0].Rules = []netlab.Rule{{Mark: 1}} }, `namespaces[0].rules[0].table`},
		"neighbour": {func(t *netlab.Topology) {
			t.Namespaces[0].Neighbours = []netlab.Neighbour{{Dev: "eth7", Address: netip.MustParseAddr("10.1.0.2"), MAC: mac}}
		}, `namespaces[0].neighbours[0].dev: no interface "eth7"`},
		"macvlan":     {func(t *netlab.Topology) { t.Namespaces[0].Macvlans = []netlab.Macvlan{{Name: "m0", Parent: "eth7"}} }, `namespaces[0].macvlans[0].parent`},
		"host sysctl": {func(t *netlab.Topology) { t.Namespaces[0].Sysctls = []netlab.Sysctl{{Key: "kernel.panic", Value: "1"}} }, `namespaces[0].sysctls[0].key: "kernel.panic"`},
		"sysctl path": {func(t *netlab.Topology) {
			t.Namespaces[0].Sysctls = []netlab.Sysctl{{Key: "net/../kernel/panic", Value: "1"}}
		}, `namespaces[0].sysctls[0].key`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			topology := pair("valid")
			if err := topology.Validate(); err != nil {
				t.Fatal(err)
			}
			c.change(&topology)
			if err := topology.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// A lab can be taken down after `ip netns add`, which makes /run/netns a mount of its own where it is none yet. In a mount
// namespace in which it is none.
func TestRootOthersMayAddNamespaces(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "ip", "unshare", "mount")
	if os.Getenv("WEIR_NETLAB_MOUNTS") == "" {
		inner := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec", `mount -t tmpfs none /run; mkdir /run/netns; exec "$0" "$@"`,
			os.Args[0], "-test.v", "-test.run=^TestRootOthersMayAddNamespaces$")
		inner.Env = append(os.Environ(), "WEIR_NETLAB_MOUNTS=1")
		if out, err := inner.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestRootOthersMayAddNamespaces") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	lab := netlabtest.Up(t, pair("mounts"))
	other := "other" + strconv.Itoa(os.Getpid())
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", other).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := lab.Down(); err != nil {
		t.Error(err)
	}
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "delete", other).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
