package tcpscale

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// asWorker in the environment makes the test binary a worker.
const asWorker = "WEIR_TCPSCALE_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		if err := RunWorker(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var here = Launcher{Command: workerCommand}

func workerCommand() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asWorker+"=1")
	return cmd
}
