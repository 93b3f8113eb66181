package netlabtest

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// testEnv holds the id of the test's process.
const testEnv = "WEIR_TEST_PARENT"

// AdoptChildren has every process that this one starts from now on know whose it is. Call it in TestMain, before the tests
// of a package whose processes start others that outlive them by design.
func AdoptChildren() error { return os.Setenv(testEnv, strconv.Itoa(os.Getpid())) }

// EndWithTest kills this process when that of the tests has ended, however it did. Call it in TestMain where the test binary
// stands for another program. Without AdoptChildren before, it does nothing.
func EndWithTest() {
	pid, err := strconv.Atoi(os.Getenv(testEnv))
	if err != nil {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil { // it is gone already
		os.Exit(1)
	}
	go func() {
		for {
			if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); n > 0 || err != nil && err != unix.EINTR { //nolint:errorlint // a bare errno
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			}
		}
	}()
}
