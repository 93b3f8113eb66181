package programs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// StopWeir removes the tables and programs, which outlive the process that made them. After ctx has ended it only takes the pins: the
// namespace, and what the kernel keeps in it, ends with the run.
func StopWeir(ctx context.Context, running *Group, binary string, host *netlab.Host, pins string) error {
	if ctx.Err() != nil {
		return os.RemoveAll(pins)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	output := &LastLines{}
	cmd := exec.CommandContext(ctx, binary, "lb", "stop", "--pin-path", pins)
	cmd.Stdout, cmd.Stderr = output, output
	if err := running.Run(host, cmd); err != nil {
		return fmt.Errorf("%s: weir lb stop: %w%s", filepath.Base(pins), err, output.LastOutput())
	}
	return nil
}

// pinFolder holds the pins of every run; the process id in a name shows whose they are. A bpf file system allows no dots.
const pinFolder = "/sys/fs/bpf/weir"

// PinPath is where a run's balancer of that name keeps its tables.
func PinPath(path string) string {
	return filepath.Join(pinFolder, fmt.Sprintf("bench-%d-%s", os.Getpid(), path))
}

// SweepPins removes what a run left that was killed.
func SweepPins() error {
	entries, err := os.ReadDir(pinFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		var pid int
		if n, _ := fmt.Sscanf(entry.Name(), "bench-%d-", &pid); n != 1 || pid <= 0 || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(pinFolder, entry.Name())))
	}
	return err
}

// AbandonPins removes what is pinned for this process: it is for a process that ends at once.
func AbandonPins() error {
	paths, err := filepath.Glob(filepath.Join(pinFolder, fmt.Sprintf("*-%d-*", os.Getpid())))
	for _, path := range paths {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}
