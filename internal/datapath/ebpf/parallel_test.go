package ebpf

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
)

// TestMain lets more tests run at a time than there are cores: each has
// namespaces, tables and pins of its own, and waits for the kernel (grace
// periods, carriers) half of its time.
func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", fmt.Sprint(min(2*runtime.GOMAXPROCS(0), 6))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}
