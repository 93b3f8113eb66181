package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// stage is where something is measured: a network, the programs that were started in it, and what is to be undone.
type stage struct {
	binary  string // weir itself
	dir     string // configurations and admin sockets
	lab     *netlab.Lab
	running *programs.Group
	daemons []*programs.Daemon
	undo    []func() error
	scratch *scratch.Dir
}

// openStage opens one in a network of its own; nil: the host's.
func openStage(run *Run, topology *netlab.Topology) (*stage, error) {
	dir, err := scratch.New()
	if err != nil {
		return nil, err
	}
	s := &stage{binary: run.Binary, dir: dir.Path, running: programs.NewGroup(), scratch: dir}
	if topology != nil {
		if s.lab, err = netlab.Up(*topology); err != nil {
			return nil, errors.Join(err, dir.Remove())
		}
	}
	return s, nil
}

// host is a namespace of the network; nil without one of its own.
func (s *stage) host(namespace string) *netlab.Host {
	if s.lab == nil {
		return nil
	}
	return s.lab.Namespace(namespace)
}

// daemon starts our own binary in a namespace and waits until it answers.
func (s *stage) daemon(ctx context.Context, namespace, name string, args ...string) (*programs.Daemon, error) {
	d, err := programs.StartDaemon(ctx, s.running, s.host(namespace), s.binary, s.dir, name, args...)
	if d != nil {
		s.daemons = append(s.daemons, d)
	}
	return d, err
}

// kernel runs the kernel data path with a configuration on interfaces of a namespace. Its tables go when the stage is closed.
func (s *stage) kernel(ctx context.Context, namespace, name, config, interfaces string, more ...string) (*programs.Daemon, error) {
	file, pins := filepath.Join(s.dir, name+".yaml"), programs.PinPath(name)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	s.undo = append(s.undo, func() error { return programs.StopWeir(ctx, s.running, s.binary, s.host(namespace), pins) })
	args := []string{"lb", "run", "-c", file, "--datapath", "ebpf", "--interface", interfaces, "--pin-path", pins}
	return s.daemon(ctx, namespace, name+"-lb", append(args, more...)...)
}

// output runs a program in a namespace and returns what it printed, also when it failed. It is killed when ctx ends.
func (s *stage) output(ctx context.Context, namespace string, cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	said := &programs.LastLines{}
	cmd.Stdout, cmd.Stderr = &out, said
	if err := s.running.Start(s.host(namespace), cmd); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	err := cmd.Wait()
	stop()
	s.running.Forget(cmd)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return out.Bytes(), fmt.Errorf("%s: %w%s", filepath.Base(cmd.Path), err, said.Said())
	}
	return out.Bytes(), nil
}

// failure is the error of a program that ended before its time.
func (s *stage) failure() error {
	for _, d := range s.daemons {
		if err := d.Failure(); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the daemons and undoes what outlives them. A daemon that has ended by itself is no error here: failure tells it.
func (s *stage) stop() error {
	var errs []error
	for _, d := range slices.Backward(s.daemons) {
		if d.Failure() == nil {
			errs = append(errs, d.Stop())
		}
	}
	for _, undo := range slices.Backward(s.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

// close ends everything.
func (s *stage) close() error {
	errs := []error{s.stop()}
	s.running.End()
	if s.lab != nil {
		errs = append(errs, s.lab.Down())
	}
	if s.scratch != nil {
		errs = append(errs, s.scratch.Remove())
	}
	return errors.Join(errs...)
}

// through is a route to everything by a gateway.
func through(gateway string) []netlab.Route {
	return []netlab.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr(gateway)}}
}

// cable joins an interface of one namespace to one of another.
func cable(namespace, device string, addresses []netip.Prefix, to, toDevice, toAddress string) netlab.Link {
	return netlab.Link{
		A: netlab.End{Namespace: namespace, Name: device, Addresses: addresses},
		B: netlab.End{Namespace: to, Name: toDevice, Addresses: netlab.Prefixes(toAddress)},
	}
}

// freePorts finds UDP ports on 127.0.0.1 of a namespace, nil: of ours. They are free a moment later too unless somebody else is
// fast.
func freePorts(host *netlab.Host, n int) (ports []netip.AddrPort, err error) {
	err = within(host, func() error {
		for range n {
			conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				return fmt.Errorf("find a free port: %w", err)
			}
			defer conn.Close() // only when all are chosen: each is another one
			ports = append(ports, conn.LocalAddr().(*net.UDPAddr).AddrPort())
		}
		return nil
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

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
