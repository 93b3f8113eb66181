package measuring

import (
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/weir-lb/weir/internal/tcpscale"
)

// TCPWorkers makes the processes of workers: this program again, here.
func TCPWorkers(stderr io.Writer) (launcher tcpscale.Launcher, err error) {
	self, err := os.Executable()
	if err != nil {
		return launcher, fmt.Errorf("find our own binary: %w", err)
	}
	launcher.Command = func() *exec.Cmd {
		cmd := exec.Command(self, "tcp", "worker")
		cmd.Stderr = stderr
		return cmd
	}
	return launcher, nil
}
