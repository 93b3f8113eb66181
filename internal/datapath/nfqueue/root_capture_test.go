package nfqueue

import (
	"bytes"
	"flag"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/packet"
)

var update = flag.Bool("update", false, "write testdata again")

// Datagrams that the client's kernel cuts up, captured on the balancer's wire, then replayed in any order.
func TestRootNFQCapture(t *testing.T) {
	w := newWorld(t, 4, 1, Config{})
	w.run(worldSpec("", 0, 1, 2, 3))
	var fd int
	if err := w.balancer.Do(func() (err error) {
		all := uint16(unix.ETH_P_ALL)
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all<<8|all>>8)); err != nil {
			return err
		}
		index, _, err := w.balancer.Interface("in0")
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: index})
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var file bytes.Buffer
	writer, err := packet.NewCaptureWriter(&file, "weir test")
	if err != nil {
		t.Fatal(err)
	}
	on, err := writer.Interface("in0")
	if err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 1<<16)
	firsts := map[flow.FragmentKey]int{}
	at := time.Duration(0)
	for n := range 64 {
		client, vip := endpoints(n%2 == 1, uint16(9000+n))
		payload := tag(900_000+n, 3000+100*n)
		if err := w.client.Do(func() error {
			c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(client), net.UDPAddrFromAddrPort(vip))
			if err != nil {
				return err
			}
			defer c.Close()
			w.where("udp", payload, func() { _, err = c.Write(payload) })
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for {
		n, from, err := unix.Recvfrom(fd, frame, unix.MSG_DONTWAIT)
		if err != nil {
			break
		}
		if link := from.(*unix.SockaddrLinklayer); link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		var p packet.Packet
		if packet.ParseFrame(frame[:n], &p) != nil || !p.First && !p.Later {
			continue // the neighbours' talk
		}
		if p.First {
			firsts[p.Fragment]++
		}
		if firsts[p.Fragment] > 1 {
			continue // the kernel drew the same 16 random bits twice: not to be distinguished in any order
		}
		at += time.Millisecond
		if err := writer.Packet(on, at, n, frame[:min(n, 128)], ""); err != nil {
			t.Fatal(err)
		}
	}
	replayCapture(t, readCapture(t, file.Bytes()))
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(captureFile, file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
