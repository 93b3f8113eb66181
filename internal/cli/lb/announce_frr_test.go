package lb

import (
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const frrBGP = `router bgp 64513
 bgp router-id 10.2.0.1
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 neighbor 10.2.0.11 remote-as 64512
 neighbor 10.2.0.11 password secret
 neighbor 10.2.0.11 ttl-security hops 1
 neighbor 10.2.0.11 timers connect 1
 address-family ipv4 unicast
  network 203.0.113.0/24
  neighbor 10.2.0.11 activate
 exit-address-family
`

const frrBFD = `bfd
 profile fast
  detect-multiplier 3
  receive-interval 80
  transmit-interval 80
 exit
exit
`

// frr is FRR in the lab's router.
type frr struct {
	t      *testing.T
	router *netlab.Host
	dir    string
}

func newFRR(t *testing.T, router *netlab.Host) *frr {
	t.Helper()
	netlabtest.Tools(t, frrDaemons+"zebra", frrDaemons+"bgpd", frrDaemons+"bfdd", "vtysh")
	dir, err := os.MkdirTemp("/tmp", "frr") // its user has to reach it, which a temporary directory of a test may not allow
	clitest.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	account, err := user.Lookup("frr")
	clitest.Must(t, err)
	id, err := strconv.Atoi(account.Uid)
	clitest.Must(t, err)
	clitest.Must(t, os.Chown(dir, id, id))
	f := &frr{t: t, router: router, dir: dir}
	f.start("zebra", "")
	netlabtest.Eventually(t, "the socket of zebra", func() bool { // the others would try again after 10 s
		_, err := os.Stat(filepath.Join(dir, "zserv"))
		return err == nil
	})
	return f
}

const frrDaemons = "/usr/lib/frr/"

// password writes the file with the password of the session.
func (f *frr) password() string {
	path := filepath.Join(f.dir, "password")
	clitest.Must(f.t, os.WriteFile(path, []byte("secret\n"), 0o600))
	return path
}

// start starts a daemon with a configuration.
func (f *frr) start(name, text string, args ...string) {
	f.t.Helper()
	conf := filepath.Join(f.dir, name+".conf")
	clitest.Must(f.t, os.WriteFile(conf, []byte(text), 0o644))
	pid, zebra := filepath.Join(f.dir, name+".pid"), filepath.Join(f.dir, "zserv")
	common := []string{"-f", conf, "-i", pid, "-z", zebra, "--vty_socket", f.dir, "--log", "stdout"}
	daemon(f.t, f.router, frrDaemons+name, append(common, args...)...)
}

// bfdPeer is a peer of bfdd as it shows it.
type bfdPeer struct {
	Peer, Status string
	Multihop     bool
}

// peer returns what bfdd says of the only peer; nil: it has none.
func (f *frr) peer() *bfdPeer {
	f.t.Helper()
	var all []bfdPeer
	out, err := f.router.Exec(f.t.Context(), "vtysh", "--vty_socket", f.dir, "-d", "bfdd", "-c", "show bfd peers json")
	if err != nil || json.Unmarshal([]byte(out[max(strings.Index(out, "["), 0):]), &all) != nil || len(all) != 1 {
		f.t.Logf("peers of bfdd: %s, %v", out, err)
		return nil
	}
	return &all[0]
}

// frrLab is the network of announcements with FRR as the router, which has no daemon for BGP or BFD yet.
func frrLab(t *testing.T) (*netlab.Lab, *fib, *frr) {
	t.Helper()
	lab := announceLab(t)
	router := lab.Namespace("router")
	routes := watchFIB(t, router)
	probed(t, lab.Namespace("backend1"))
	probed(t, lab.Namespace("backend2"))
	return lab, routes, newFRR(t, router)
}

// FRR takes what BIRD takes. It has no IPv6 for this neighbour here, which is told, as IPv6 prefixes do not reach it.
func TestRootAnnounceToFRR(t *testing.T) {
	clitest.TakesSeconds(t)
	lab, fib, f := frrLab(t)
	f.start("bgpd", frrBGP, "-l", "10.2.0.1")
	lb1, admin := announcingLB(t, lab, 1, f.password(), "0s")
	fib.await(vip4Prefix, 1)
	status := lb1.until("the missing family", func(s *v1.LBStatus) bool {
		n := neighbourOf(s)
		return n.Problem != "" && n.State == "established"
	})
	if n := neighbourOf(status); n.Problem != "1 of 1 IPv6 prefixes are not sent: turn the address family IPv6 unicast on at the neighbour" || n.Advertised != 1 {
		t.Errorf("%+v", n)
	}
	if _, err := admin.Withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	fib.await(vip4Prefix, 0)
	if s := lb1.until("withdrawn", func(s *v1.LBStatus) bool { return s.Announce.State == "withdrawn" }).Announce; s.Prefixes[0].Reason == "" {
		t.Errorf("%+v", s)
	}
	if _, err := admin.Announce(t.Context()); err != nil {
		t.Fatal(err)
	}
	fib.await(vip4Prefix, 1)
}

// BFD with FRR's bfdd is up on both sides, and a balancer that is silently gone is withdrawn long before the hold time of 9 s ends. With
// ttl-security, bgpd would make a BFD session of several hops, which has another port. The first session ends once: when it is established,
// bgpd replaces the BFD session by one with the source address and the interface, and BFD here expires.
func TestRootAnnounceToFRRWithBFD(t *testing.T) {
	clitest.TakesSeconds(t)
	lab, fib, f := frrLab(t)
	f.start("bfdd", frrBFD, "--bfdctl", filepath.Join(f.dir, "bfdd.sock"))
	bgp := strings.Replace(frrBGP, "neighbor 10.2.0.11 ttl-security hops 1", "neighbor 10.2.0.11 bfd profile fast", 1)
	f.start("bgpd", bgp, "-l", "10.2.0.1")
	config := strings.Replace(fmt.Sprintf(announceFile, 11, f.password(), "0s"), "ttl_security: true, ", "", 1)
	lb1 := newKernelLB(t, lab.Namespace("lb1"), "tcx", "eth0", config)
	up := func(when string) {
		t.Helper()
		fib.await(vip4Prefix, 1)
		lb1.until("BFD up at the balancer "+when, func(s *v1.LBStatus) bool {
			n := neighbourOf(s)
			return n.State == "established" && n.BFD == "up"
		})
		netlabtest.Eventually(t, "BFD up at the router "+when, func() bool {
			p := f.peer()
			return p != nil && p.Peer == "10.2.0.11" && p.Status == "up" && !p.Multihop
		})
	}
	up("at first")
	off := time.Now()
	clitest.Must(t, lab.Namespace("segment").SetUp("to-lb1", false))
	gone := fib.await(vip4Prefix, 0).Sub(off)
	t.Logf("power-off: the route was gone after %v", gone)
	if gone > 2*time.Second {
		t.Errorf("BFD found out after %v", gone)
	}
	clitest.Must(t, lab.Namespace("segment").SetUp("to-lb1", true))
	up("again")
}
