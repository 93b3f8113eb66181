package lb

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
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

// FRR takes what BIRD takes, BFD aside, which is not tried. It has no IPv6 for this neighbour here, which is told, as IPv6 prefixes do not reach it.
func TestRootAnnounceToFRR(t *testing.T) {
	const daemons = "/usr/lib/frr/"
	netlabtest.Tools(t, daemons+"zebra", daemons+"bgpd")
	clitest.TakesSeconds(t)
	lab := announceLab(t)
	dir, err := os.MkdirTemp("/tmp", "frr") // its user has to reach it, which a temporary directory of a test may not allow
	clitest.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	password := filepath.Join(dir, "password")
	clitest.Must(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	router := lab.Namespace("router")
	fib := watchFIB(t, router)
	probed(t, lab.Namespace("backend1"))
	probed(t, lab.Namespace("backend2"))
	frr, err := user.Lookup("frr")
	clitest.Must(t, err)
	id, err := strconv.Atoi(frr.Uid)
	clitest.Must(t, err)
	clitest.Must(t, os.Chown(dir, id, id))
	common := func(name, text string) []string {
		conf := filepath.Join(dir, name+".conf")
		clitest.Must(t, os.WriteFile(conf, []byte(text), 0o644))
		return []string{"-f", conf, "-i", filepath.Join(dir, name+".pid"), "-z", filepath.Join(dir, "zserv"), "--vty_socket", dir, "--log", "stdout"}
	}
	daemon(t, router, daemons+"zebra", common("zebra", "")...)
	netlabtest.Eventually(t, "the socket of zebra", func() bool { // the others would try again after 10 s
		_, err := os.Stat(filepath.Join(dir, "zserv"))
		return err == nil
	})
	daemon(t, router, daemons+"bgpd", append(common("bgpd", frrBGP), "-l", "10.2.0.1")...)
	lb1, admin := announcingLB(t, lab, 1, password, "0s")
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
