package privilege

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// AllowCore is the environment variable that, set to 1, keeps core dumps and debuggers of the same user possible.
const AllowCore = "WEIR_ALLOW_CORE"

// ProtectKeys keeps the memory of the process out of core dumps and away from other processes of the same user: its keys are
// in it. Call it before keys are read. It lasts until the next exec.
func ProtectKeys() error {
	if os.Getenv(AllowCore) == "1" {
		return nil
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("no core dumps, which would hold keys: %w", err)
	}
	// The kernel ignores the limit where core_pattern is a pipe, but not this.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("no core dumps, which would hold keys: %w", err)
	}
	return nil
}
