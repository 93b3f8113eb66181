package maps

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is the data path's: the kernel's tick, or a counter of milliseconds
// that tests set.
type Clock struct {
	Tick   time.Duration
	Manual bool
}

// KernelClock reads how long the kernel's tick is.
func KernelClock() (Clock, error) {
	var ts unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil {
		return Clock{}, fmt.Errorf("length of the kernel's tick: %w", err)
	}
	return Clock{Tick: time.Duration(ts.Nano())}, nil
}

// Ticks turns a duration into ticks of the data path's clock, rounded up; the
// greatest value stands for ever.
func (c Clock) Ticks(d time.Duration) uint32 {
	n := (d + c.Tick - 1) / c.Tick
	if d > math.MaxInt64-c.Tick || n >= math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(n)
}

// HopShift makes stretches of time of up to eight seconds out of ticks: how
// long a flow remembers the next hop towards its client.
func (c Clock) HopShift() uint32 { return uint32(bits.Len32(c.Ticks(8*time.Second)) - 1) }

// BootTicks computes jiffies from the coarse clock: both advance by one tick at
// a time, and jiffies start five minutes before they would wrap 32 bits.
func BootTicks(tick time.Duration) int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	const early = 300 * time.Second
	return int64(1)<<32 - int64(early/tick) + ts.Nano()/int64(tick)
}

// Now is the clock of the tables in ticks.
func (t *Tables) Now(c Clock) uint64 {
	if c.Manual {
		return atomic.LoadUint64(&t.Control.Now)
	}
	return uint64(BootTicks(c.Tick))
}
