package netlabtest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// SideBySide lets more parallel tests run at a time than there are cores, unless -parallel says how many: for a package whose
// tests wait for most of their time, for grace periods of the kernel, for carriers, for other programs. Call it in TestMain.
func SideBySide() error {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if chosen {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(min(3*runtime.GOMAXPROCS(0), 8)))
}

// MainSideBySide is the TestMain of such a package.
func MainSideBySide(m *testing.M) {
	if err := SideBySide(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}
