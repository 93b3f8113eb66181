package kernelnat

import (
	"fmt"
	"os"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func TestMain(m *testing.M) {
	if err := netlabtest.SideBySide(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}
