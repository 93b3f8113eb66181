package netlabtest_test

import (
	"net"
	"testing"

	"github.com/weir-lb/weir/internal/lab/netlab/netlabtest"
)

func TestUDPPortsAreFreeAndStayOnesOwn(t *testing.T) {
	seen := map[uint16]bool{}
	for range 500 {
		port := netlabtest.UDPPort(t)
		if seen[port] {
			t.Fatalf("port %d twice", port)
		}
		seen[port] = true
	}
	for port := range seen {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: int(port)})
		if err != nil {
			t.Errorf("port %d is not free: %v", port, err)
			continue
		}
		conn.Close()
	}
	// The kernel's own choice never meets them.
	for range 500 {
		conn, err := net.ListenUDP("udp", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if port := uint16(conn.LocalAddr().(*net.UDPAddr).Port); seen[port] {
			t.Errorf("the kernel gave port %d away", port)
		}
	}
}

func TestUDPPortsAreGivenBack(t *testing.T) {
	var port uint16
	t.Run("one test", func(t *testing.T) { port = netlabtest.UDPPort(t) })
	claim, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 255, 255, 254), Port: int(port)})
	if err != nil {
		t.Fatalf("after the test the number is still taken: %v", err)
	}
	claim.Close()
}
