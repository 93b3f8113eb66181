package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Lab is a topology that is up.
type Lab struct {
	topology Topology
	hosts    map[string]*Host
}

// Option changes how Up names and keeps a lab.
type Option func(*options)

type options struct{ keep bool }

// Keep lets the lab outlive this process, under names without its PID; only one of a name can be up. [Open] finds it.
func Keep() Option { return func(o *options) { o.keep = true } }

// Up builds t. It removes first what labs of dead processes left behind. On an error nothing of t stays.
func Up(t Topology, opts ...Option) (*Lab, error) {
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("topology %s: %w", t.Name, err)
	}
	if _, err := Sweep(); err != nil {
		return nil, err
	}
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	fullName := keptName
	if !o.keep {
		number, pid := rand.Uint32(), os.Getpid() // two labs of one name differ by the number
		fullName = func(lab, namespace string) string { return ownedName(lab, pid, number, namespace) }
	}
	lab := &Lab{topology: t, hosts: map[string]*Host{}}
	if err := lab.build(fullName); err != nil {
		return nil, errors.Join(fmt.Errorf("lab %s: %w", t.Name, err), lab.Down())
	}
	return lab, nil
}

// Open returns the kept lab of t that is up.
func Open(t Topology) (*Lab, error) {
	lab := &Lab{topology: t, hosts: map[string]*Host{}}
	for _, ns := range t.Namespaces {
		full := keptName(t.Name, ns.Name)
		fd, err := netns.GetFromName(full)
		if err != nil {
			lab.Close()
			return nil, fmt.Errorf("lab %s is not up: namespace %s: %w", t.Name, full, err)
		}
		if err := lab.addHost(ns.Name, full, fd); err != nil {
			lab.Close()
			return nil, err
		}
	}
	return lab, nil
}

// Topology is the value the lab was built from.
func (l *Lab) Topology() Topology { return l.topology }

// Namespace returns one of the topology's namespaces. It panics when the topology has none of that name.
func (l *Lab) Namespace(name string) *Host {
	host := l.hosts[name]
	if host == nil {
		panic(fmt.Sprintf("netlab: topology %q has no namespace %q", l.topology.Name, name))
	}
	return host
}

// Find is Namespace for a name that a person typed.
func (l *Lab) Find(name string) (*Host, bool) {
	host, ok := l.hosts[name]
	return host, ok
}

// Close releases the handles and leaves the namespaces: the end of a program that used a kept lab.
func (l *Lab) Close() {
	for _, host := range l.hosts {
		host.close()
	}
}

// Down kills the processes inside the lab's namespaces and removes them. A second call does nothing.
func (l *Lab) Down() error {
	var errs []error
	for name, host := range l.hosts {
		if host.fd.IsOpen() {
			errs = append(errs, endProcesses(host.full))
		}
		host.close()
		errs = append(errs, removeNamespace(host.full))
		delete(l.hosts, name)
	}
	return errors.Join(errs...)
}

func (l *Lab) addHost(name, full string, fd netns.NsHandle) error {
	host := &Host{name: name, full: full, fd: fd}
	l.hosts[name] = host
	handle, err := netlink.NewHandleAt(fd, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink socket in %s: %w", full, err)
	}
	host.handle = handle
	return nil
}

// createNamespace makes a namespace bound to /run/netns/full, without moving the caller into it.
func createNamespace(full string) (fd netns.NsHandle, err error) {
	fd = netns.None()
	if err := shareMounts(); err != nil {
		return fd, err
	}
	home, err := netns.Get()
	if err != nil {
		return fd, fmt.Errorf("open this process' namespace: %w", err)
	}
	defer home.Close()
	done := make(chan error, 1)
	go func() {
		done <- doIn(home, func() (err error) {
			fd, err = netns.NewNamed(full)
			return err
		})
	}()
	switch err := <-done; {
	case err == nil:
		return fd, nil
	case errors.Is(err, fs.ErrExist): // another's: not ours to remove
		return netns.None(), fmt.Errorf("create namespace %s: %w", full, err)
	default:
		return netns.None(), errors.Join(fmt.Errorf("create namespace %s: %w", full, err), removeNamespace(full))
	}
}
