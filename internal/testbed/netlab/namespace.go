package netlab

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Host is a namespace of a lab that is up. Its methods may be called from any goroutine, until Down.
type Host struct {
	name   string // in the topology
	full   string // under /run/netns
	fd     netns.NsHandle
	handle *netlink.Handle
}

// Name is the namespace's name in the topology.
func (h *Host) Name() string { return h.name }

// NetNS is its name for `ip netns exec`.
func (h *Host) NetNS() string { return h.full }

// Do runs f on an OS thread that is inside the namespace, and returns f's error. A socket that f opens stays in the
// namespace and may be used from anywhere afterwards. Goroutines that f starts are not inside: dial literal addresses
// only, since a resolver is such a goroutine.
func (h *Host) Do(f func() error) error {
	result := make(chan error, 1)
	go func() { result <- doIn(h.fd, f) }()
	return <-result
}

// Enter takes the calling goroutine into the namespace: for a series of short calls, of which Do would enter and leave for each. leave takes it
// back, on the same goroutine; until then it is locked to its thread. What Do says of goroutines that f starts is true of those that it starts.
func (h *Host) Enter() (leave func(), err error) { return enter(h.fd) }

// enter locks the calling goroutine to its thread, inside ns. If leave fails to go back, the goroutine stays locked, so that the thread ends with
// it and no other goroutine ever runs in a foreign namespace.
func enter(ns netns.NsHandle) (leave func(), err error) {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("open this thread's namespace: %w", err)
	}
	if err := netns.Set(ns); err != nil {
		home.Close()
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("enter namespace: %w", err)
	}
	return func() {
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		home.Close()
	}, nil
}

// doIn runs f inside ns on the calling goroutine, which afterwards is back where it was.
func doIn(ns netns.NsHandle, f func() error) error {
	leave, err := enter(ns)
	if err != nil {
		return err
	}
	defer leave()
	return f()
}

// Start starts cmd inside the namespace; the caller waits for it. Down kills it if it still runs then.
func (h *Host) Start(cmd *exec.Cmd) error {
	if err := h.Do(cmd.Start); err != nil {
		return fmt.Errorf("start %s in %s: %w", cmd.Path, h.name, err)
	}
	return nil
}

// Run is Start and Wait.
func (h *Host) Run(cmd *exec.Cmd) error {
	if err := h.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// Exec runs a program inside the namespace and returns its standard output and error together. The error, if any,
// carries them too.
func (h *Host) Exec(ctx context.Context, program string, args ...string) (string, error) {
	var output strings.Builder
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := h.Run(cmd); err != nil {
		return output.String(), fmt.Errorf("%s: %s %s: %w\n%s", h.name, program, strings.Join(args, " "), err, output.String())
	}
	return output.String(), nil
}

// Interface returns index and MAC of one of the namespace's interfaces.
func (h *Host) Interface(name string) (index int, mac [6]byte, err error) {
	link, err := h.handle.LinkByName(name)
	if err != nil {
		return 0, mac, fmt.Errorf("%s: interface %s: %w", h.name, name, err)
	}
	copy(mac[:], link.Attrs().HardwareAddr)
	return link.Attrs().Index, mac, nil
}

// SetUp brings an interface up or down, as pulling its cable would.
func (h *Host) SetUp(name string, up bool) error {
	link, err := h.handle.LinkByName(name)
	if err == nil && up {
		err = h.handle.LinkSetUp(link)
	} else if err == nil {
		err = h.handle.LinkSetDown(link)
	}
	if err != nil {
		return fmt.Errorf("%s: set %s up=%v: %w", h.name, name, up, err)
	}
	return nil
}

func (h *Host) close() {
	if h.handle != nil {
		h.handle.Close()
	}
	if h.fd.IsOpen() {
		h.fd.Close()
	}
}

// Privileged returns nil when this process may create network namespaces, else why not.
func Privileged() error {
	home, err := netns.Get()
	if err != nil {
		return fmt.Errorf("open this process' namespace: %w", err)
	}
	defer home.Close()
	done := make(chan error, 1)
	go func() {
		done <- doIn(home, func() error {
			made, err := netns.New()
			if err != nil {
				return fmt.Errorf("create a network namespace: %w", err)
			}
			return made.Close()
		})
	}()
	return <-done
}
