package netlabtest

import (
	"net"
	"testing"
)

func TestUDPPortsAreFreeAndStayOnesOwn(t *testing.T) {
	seen := map[uint16]bool{}
	for range 500 {
		port := UDPPort(t)
		if seen[port] {
			t.Fatalf("port %d twice", port)
		}
		seen[port] = true
	}
	for range 100 {
		port := UDPPortPair(t)
		if seen[port] || seen[port+1] {
			t.Fatalf("ports %d and %d: one of them twice", port, port+1)
		}
		seen[port], seen[port+1] = true, true
	}
	for port := range seen {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: int(port)})
		if err != nil {
			t.Errorf("port %d is not free: %v", port, err)
			continue
		}
		conn.Close()
	}
	// The kernel's own choice never meets them, where it leaves some.
	low, high := kernelPorts()
	if first, _ := portsOutside(low, high); first == 0 {
		return
	}
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

func TestPortsOutsideTheKernelsRange(t *testing.T) {
	for _, c := range [][4]int{
		{32768, 60999, 24768, 32767},
		{2000, 65535, 1024, 1999},
		{1024, 60999, 61000, 65535},
		{1024, 65535, 0, 0},
		{1100, 65500, 0, 0},
		{1024, 30000, 57535, 65535},
	} {
		if first, last := portsOutside(c[0], c[1]); first != c[2] || last != c[3] {
			t.Errorf("the kernel has %d to %d: %d to %d, want %d to %d", c[0], c[1], first, last, c[2], c[3])
		}
	}
}

func TestUDPPortsAreGivenBack(t *testing.T) {
	var port uint16
	t.Run("one test", func(t *testing.T) { port = UDPPort(t) })
	claim, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 255, 255, 254), Port: int(port)})
	if err != nil {
		t.Fatalf("after the test the number is still taken: %v", err)
	}
	claim.Close()
}
