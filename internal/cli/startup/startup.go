// Package startup lets the heap grow to a few times its usual size before the first garbage collection, in the first second of a process. What
// packages make when they are initialized lives as long as the process, and most commands have ended by then: collections would find next to
// nothing, and take a sixth of the processor time of a start.
//
// Go initializes this package before those that make most, because it needs less than they do.
package startup

import (
	"os"
	"runtime/debug"
	"time"
)

const (
	percent = 400 // as GOGC
	within  = time.Second
)

func init() {
	if os.Getenv("GOGC") != "" { // the user has chosen
		return
	}
	usual := debug.SetGCPercent(percent)
	time.AfterFunc(within, func() { debug.SetGCPercent(usual) })
}
