package tcpscale

import "os/exec"

// Launcher starts the processes of a group: in this process's network namespace, or in another.
type Launcher struct {
	// Command makes a worker's process, not yet started; it must run [RunWorker] on its standard input and output.
	Command func() *exec.Cmd
	// Do runs f inside the group's network namespace, on the same thread from f's beginning to its end, and returns f's
	// error; netlab's Host.Do is one. f of a worker returns when the worker has ended. nil: in our own namespace.
	Do func(f func() error) error
}

// do runs f where the group's sockets are, and so where /proc/sys/net describes them.
func (p Launcher) do(f func() error) error {
	if p.Do == nil {
		return f()
	}
	return p.Do(f)
}
