package turn

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A signal to end is heeded at any moment of an upgrade, also while no process serves and the supervisor is being replaced. The binary is that of users:
// one with cgo cannot block signals in all threads.
func TestEndDuringUpgrade(t *testing.T) {
	clitest.TakesSeconds(t)
	binary, address := netlabtest.Weir(t), clitest.FreeAddresses(t, 1)[0]
	for i := range 15 {
		p := clitest.StartBinary(t, binary, "gateway", "turn", "gateway", "turn://u:p@"+address, "--workers", "1")
		var status v1.TurnStatus
		p.Status(&status)
		serving := fmt.Sprintf("/proc/%d/fd", status.PID)
		clitest.Must(t, p.Cmd.Process.Signal(syscall.SIGUSR2))
		for after := 0; after <= i; { // each round a little later after the end of that process
			if _, err := os.ReadDir(serving); err != nil {
				after++
			}
		}
		clitest.Must(t, p.Cmd.Process.Signal(syscall.SIGTERM))
		select {
		case <-p.Ended:
		case <-time.After(50 * time.Second):
			t.Fatalf("round %d: the gateway does not end", i)
		}
	}
}
