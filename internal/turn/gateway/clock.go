package gateway

import (
	"encoding/json"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// Clock returns the clock of Options.Now: nanoseconds since the host booted. No one can set this clock, and it
// continues in the next process, so a step of the wall clock neither ends nor extends a lifetime.
func Clock() func() int64 {
	var boot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) // cannot fail: Linux has it since 2.6.39
	start, at := time.Now(), boot.Nano()
	return func() int64 { return at + int64(time.Since(start)) }
}

// bootID identifies this boot of the host; empty if it is not known.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// clockID is the id under which the Store has the clockRecord; no allocation has it.
const clockID = 1 << 53

// ConfigID is the id under which the process that runs a gateway may store its configuration. The gateway leaves the record alone.
const ConfigID = clockID + 1

// clockRecord defines what the times of the stored records mean. They are Unix nanoseconds of a virtual wall clock
// that has not been set since the records of this boot began.
type clockRecord struct {
	Boot  string `json:"boot"`  // the boot in which the records were written
	Epoch int64  `json:"epoch"` // the start of that boot by the virtual clock
	Wall  int64  `json:"wall"`  // the start of that boot by the last seen wall clock, for use after another boot
}

// offset is the current difference between the wall clock and Options.Now.
func (g *Gateway) offset() int64 { return g.options.Wall() - g.options.Now() }

// storedClock reads what the times of the stored records mean, and returns what to add to them to get times of
// Options.Now. Within one boot, the clocks of all processes agree. After another boot, the wall clock gives how much
// time has passed.
func (g *Gateway) storedClock() (shift int64) {
	g.clock = clockRecord{Boot: g.options.Boot, Epoch: g.offset()}
	g.clock.Wall = g.clock.Epoch
	if g.options.Store == nil {
		return 0
	}
	var stored clockRecord
	g.options.Store.Records(func(id uint64, b []byte) bool {
		return id != clockID || json.Unmarshal(b, &stored) != nil
	})
	switch stored.Boot {
	case "": // written by a version that stored wall-clock times
		return -g.clock.Wall
	case g.options.Boot:
		g.clock.Epoch = stored.Epoch
		return -stored.Epoch
	}
	return stored.Wall - stored.Epoch - g.clock.Wall
}

// storeClock writes the clockRecord, at the start and after the wall clock was set.
func (g *Gateway) storeClock() {
	if g.options.Store == nil {
		return
	}
	if b, err := json.Marshal(g.clock); err == nil {
		g.options.Store.Put(clockID, b)
	}
}

// followClock detects that the wall clock was set. Only one goroutine calls it.
func (g *Gateway) followClock() {
	const step = int64(time.Second)
	if wall := g.offset(); wall > g.clock.Wall+step || wall < g.clock.Wall-step {
		g.options.Log.Info("the wall clock was set; lifetimes go by another clock", "by", time.Duration(wall-g.clock.Wall))
		g.clock.Wall = wall
		g.storeClock()
	}
}

// inWall converts the times of a record to wall-clock times, for people and other hosts.
func (g *Gateway) inWall(r allocation.Record) allocation.Record {
	r.Shift(g.offset())
	return r
}
