package ebpf

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootRejectedShares: a client of a share without a server gets a refusal at once that its own kernel takes, also through an
// interface that finishes checksums itself; of a dropped share it gets nothing; connections that exist stay.
func TestRootRejectedShares(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			topology := narrowChain(2, hook)
			topology.Name = "ebrj" + hook.String()
			lab := netlabtest.Up(t, topology)
			serve(t, lab.Namespace("backend"), ":8080")
			if out, err := lab.Namespace("lb").Exec(t.Context(), "ethtool", "-K", "left", "tx", "off"); err != nil {
				t.Fatal(out, err)
			}
			spec := func(backend string) string {
				return "services:\n- name: echo\n  mode: nat\n" + vips[1:] + "  backends: [" + backend + ", " +
					`{name: old, address: "10.4.0.2", address2: "2001:db8:4::2", port: 8080, weight: 0}]` + "\n"
			}
			client := lab.Namespace("client")
			b := start(t, lab.Namespace("lb"), Config{Interfaces: []string{"left", "right"}, Hook: hook},
				"services:\n- name: echo\n  mode: nat\n"+vips[1:]+"  backends: [{name: old, address: \"10.4.0.2\", address2: \"2001:db8:4::2\", port: 8080}]\n")
			var there []net.Conn
			for i, vip := range bothVIPs {
				there = append(there, dialFrom(t, client, "tcp", []string{"10.1.0.2:0", "[2001:db8:1::2]:0"}[i], vip))
			}
			b.apply(spec("{name: gone, action: reject}"))
			for _, vip := range bothVIPs {
				ebpftest.Do(t, client, func() error { return refusedTCP(vip) })
				ebpftest.Do(t, client, func() error { return refusedUDP(vip) })
			}
			before := counted(t, b, "share_refused")
			if before < 4 {
				t.Errorf("%d packets were counted as share_refused, want 4 or more", before)
			}
			b.apply(spec("{name: gone, action: drop}"))
			for _, vip := range bothVIPs {
				ebpftest.Do(t, client, func() error { return droppedUDP(vip) })
			}
			for i, c := range there {
				ask(t, c, fmt.Sprint("while dropped ", i))
			}
			if now := counted(t, b, "share_refused"); now != before+2 {
				t.Errorf("%d packets were counted as share_refused, want %d", now, before+2)
			}
		})
	}
}

var errAnswered = errors.New("it answered")

func refusedTCP(vip string) error {
	c, err := net.DialTimeout("tcp", vip, 10*time.Second)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("dial %s: %w, want a refused connection", vip, cmp.Or(err, errAnswered))
	}
	return nil
}

func refusedUDP(vip string) error {
	return exchange(vip, 10*time.Second, func(err error) error {
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("udp %s: %w, want a refusal", vip, cmp.Or(err, errAnswered))
		}
		return nil
	})
}

func droppedUDP(vip string) error {
	return exchange(vip, 300*time.Millisecond, func(err error) error {
		if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
			return fmt.Errorf("udp %s: %w, want silence", vip, cmp.Or(err, errAnswered))
		}
		return nil
	})
}

// exchange sends one datagram and gives the error of the read that follows.
func exchange(vip string, within time.Duration, check func(error) error) error {
	c, err := net.Dial("udp", vip)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello"); err != nil {
		return err
	}
	c.SetReadDeadline(time.Now().Add(within))
	_, err = c.Read(make([]byte, 100))
	return check(err)
}
