package udpnat_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weir-lb/weir/internal/datapath/kernelnat"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// ownNetwork in the environment names the test that runs in a process in a network namespace of its own, in which every fixture has
// an offload.
const ownNetwork = "WEIR_TEST_OWN_NETWORK"

// inOwnNetwork runs the test in a process in a network namespace of its own: workers open sockets on threads of their own, so a
// namespace of one thread does not do. It reports whether this is that process; in the other one, the test is over. args
// replace the arguments that name the test.
func inOwnNetwork(t *testing.T, args ...string) bool {
	t.Helper()
	if os.Getenv(ownNetwork) != "" {
		return true
	}
	netlabtest.Root(t)
	t.Parallel()
	if args == nil {
		args = []string{"-test.run=^" + t.Name() + "$"}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], append(args, "-test.v")...)
	cmd.Env = append(os.Environ(), ownNetwork+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("--- SKIP")) || !bytes.Contains(out, []byte("--- PASS")) {
		t.Fatalf("in a network of its own: %v\n%s", err, out)
	}
	return false
}

// TestMain makes the namespace of inOwnNetwork usable.
func TestMain(m *testing.M) {
	if os.Getenv(ownNetwork) != "" {
		if err := netlink.LinkSetUp(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "lo"}}); err != nil {
			fmt.Fprintln(os.Stderr, "lo of a namespace:", err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}

// offloaded opens the offload of a fixture in a network of the test's own.
func offloaded(t testing.TB, config *udpnat.Config) {
	t.Helper()
	if os.Getenv(ownNetwork) == "" || config.Offload != nil {
		return
	}
	table, err := kernelnat.Open(kernelnat.Config{MaxFlows: 1 << 12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	config.Offload = table
}

// inKernel exchanges datagrams until the kernel forwards those of the client both ways.
func (f *fixture) inKernel(c *client) {
	f.t.Helper()
	for range 100 {
		before := f.counters()
		c.exchange("until the kernel has it")
		if after := f.counters(); after.OffloadForwarded > before.OffloadForwarded && after.OffloadBackwarded > before.OffloadBackwarded {
			return
		}
	}
	f.t.Fatalf("the kernel does not forward the flow: %+v", f.datapath.Stats().Offload)
}

// outgoing is the address of a client's entry in the eyes of backends.
func (f *fixture) outgoing(c *client) string {
	f.t.Helper()
	for _, e := range f.datapath.Entries(100000) {
		if e.Client.String() == c.conn.LocalAddr().String() {
			return e.Outgoing.String()
		}
	}
	f.t.Fatal("the client has no entry")
	return ""
}

// skipped joins names of tests for -test.skip.
func skipped(names map[string]string) string {
	var list []string
	for name := range names {
		list = append(list, "^"+name+"$")
	}
	return strings.Join(list, "|")
}
