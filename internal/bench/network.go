package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// privileged sees that namespaces can be made, and removes what a run left that was killed.
func privileged() error {
	if err := netlab.Privileged(); err != nil {
		return fmt.Errorf("needs root: %w", err)
	}
	return programs.SweepPins()
}

// freePorts finds UDP ports on 127.0.0.1 of a namespace, nil: of ours. They are free a moment later too unless somebody else is
// fast.
func freePorts(host *netlab.Host, n int) (ports []netip.AddrPort, err error) {
	err = within(host, func() (err error) {
		ports, err = programs.FreeUDP(n)
		return err
	})
	return ports, err
}

// within calls f in a namespace, nil: here.
func within(host *netlab.Host, f func() error) error {
	if host == nil {
		return f()
	}
	return host.Do(f)
}

// until repeats what must succeed before a run goes on. After the timeout it returns the last error.
func until(ctx context.Context, timeout time.Duration, ready func() error) (err error) {
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		if err = ready(); err == nil {
			return nil
		}
		if err := programs.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return err
}

// serviceConfig is a configuration file with one service. more are lines of it; flows bounds its table, 0: as by default. vips and
// backends are written as `address: ..., port: ...`.
func serviceConfig(mode string, flows int, more string, vips []string, backends ...string) string {
	var b strings.Builder
	b.WriteString("hash_key: 5d0f2c4a6b8e1937c5d0f2c4a6b8e193\n")
	if flows > 0 {
		fmt.Fprintf(&b, "limits: {flows: %d}\n", flows)
	}
	fmt.Fprintf(&b, "services:\n- name: bench\n  mode: %s\n%s  vips:\n  - {%s}\n  backends:\n  - {%s}\n", mode, more, strings.Join(vips, "}\n  - {"), strings.Join(backends, "}\n  - {"))
	return b.String()
}

// vipOf is a VIP of serviceConfig; the port is a number or "any".
func vipOf(address netip.Addr, protocol string, port any) string {
	return fmt.Sprintf("address: %q, protocol: %s, port: %v", address, protocol, port)
}
