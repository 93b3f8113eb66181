package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// Stage is where something is measured: a network, the programs that were started in it, and what is to be undone.
type Stage struct {
	Binary  string      // weir itself
	Dir     string      // configurations and admin sockets
	Lab     *netlab.Lab // nil: the host's own network
	Running *Group
	Daemons []*Daemon
	Undo    []func() error // of what outlives its process, such as files; called in reverse order
	scratch *scratch.Dir
}

// OpenStage opens one for a weir binary in a network of its own; nil: the host's. Its user closes it.
func OpenStage(binary string, topology *netlab.Topology) (*Stage, error) {
	dir, err := scratch.New()
	if err != nil {
		return nil, err
	}
	s := &Stage{Binary: binary, Dir: dir.Path, Running: NewGroup(), scratch: dir}
	if topology != nil {
		if s.Lab, err = netlab.Up(*topology); err != nil {
			return nil, errors.Join(err, dir.Remove())
		}
	}
	return s, nil
}

// Host is a namespace of the network; nil without one of its own.
func (s *Stage) Host(namespace string) *netlab.Host {
	if s.Lab == nil {
		return nil
	}
	return s.Lab.Namespace(namespace)
}

// Daemon starts our own binary in a namespace and waits until it answers.
func (s *Stage) Daemon(ctx context.Context, namespace, name string, args ...string) (*Daemon, error) {
	d, err := StartDaemon(ctx, s.Running, s.Host(namespace), s.Binary, s.Dir, name, args...)
	if d != nil {
		s.Daemons = append(s.Daemons, d)
	}
	return d, err
}

// Kernel runs the kernel data path with a configuration on interfaces of a namespace. Its tables go when the stage is closed.
func (s *Stage) Kernel(ctx context.Context, namespace, name, config, interfaces string, more ...string) (*Daemon, error) {
	file, pins := filepath.Join(s.Dir, name+".yaml"), PinPath(name)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	s.Undo = append(s.Undo, func() error { return StopWeir(ctx, s.Running, s.Binary, s.Host(namespace), pins) })
	args := []string{"lb", "run", "-c", file, "--datapath", "ebpf", "--interface", interfaces, "--pin-path", pins}
	return s.Daemon(ctx, namespace, name+"-lb", append(args, more...)...)
}

// Output runs a program in a namespace and returns what it printed, also when it failed. It is killed when ctx ends.
func (s *Stage) Output(ctx context.Context, namespace string, cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	output := &LastLines{}
	cmd.Stdout, cmd.Stderr = &out, output
	if err := s.Running.Start(s.Host(namespace), cmd); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	err := cmd.Wait()
	stop()
	s.Running.Forget(cmd)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return out.Bytes(), fmt.Errorf("%s: %w%s", filepath.Base(cmd.Path), err, output.LastOutput())
	}
	return out.Bytes(), nil
}

// Failure is the error of a program that ended before its time.
func (s *Stage) Failure() error {
	for _, d := range s.Daemons {
		if err := d.Failure(); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the daemons and undoes what outlives them. A daemon that has ended by itself is no error here: Failure reports it.
func (s *Stage) Stop() error {
	var errs []error
	for _, d := range slices.Backward(s.Daemons) {
		if d.Failure() == nil {
			errs = append(errs, d.Stop())
		}
	}
	for _, undo := range slices.Backward(s.Undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

// Close ends everything.
func (s *Stage) Close() error {
	errs := []error{s.Stop()}
	s.Running.End()
	if s.Lab != nil {
		errs = append(errs, s.Lab.Down())
	}
	if s.scratch != nil {
		errs = append(errs, s.scratch.Remove())
	}
	return errors.Join(errs...)
}
