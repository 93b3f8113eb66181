package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/handover"
)

// notifyWithin bounds how long a message to systemd may take: a manager that does not read must not stop the work.
const notifyWithin = time.Second

// notify sends a message of sd_notify(3) to the manager that started this process as a service of Type=notify, and does nothing without
// one. The child of a supervisor is not the process that the manager listens to.
func notify(text string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" || handover.Supervised() {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET=%q: %w; it is set by systemd only", path, err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyWithin)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(text))
	return err
}

// notifyReloading reports a reload, and returns what reports its end.
func notifyReloading() (reloaded func()) {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)                          // it exists on every Linux
	_ = notify(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000)) // without an answer, the reload is as good
	return func() { _ = notify("READY=1") }
}

// Notify is a loop for services of systemd's Type=notify: it reports that the process serves once alive has returned, answers the
// watchdog (WatchdogSec=) twice as often as required while alive returns, and reports the end. alive asks the loops that do the work.
// A command with a handover.Store does not need it: the store reports.
func Notify(log *slog.Logger, alive func(ctx context.Context)) Loop {
	return func(ctx context.Context) error {
		var due <-chan time.Time // nil: no watchdog
		if period := watchdogPeriod(); period > 0 {
			ticker := time.NewTicker(period / 2)
			defer ticker.Stop()
			due = ticker.C
		}
		alive(ctx)
		if err := notify("READY=1"); err != nil {
			log.Warn("systemd is not informed", "error", err)
		}
		for {
			select {
			case <-ctx.Done():
				return notify("STOPPING=1")
			case <-due:
				if alive(ctx); ctx.Err() == nil {
					_ = notify("WATCHDOG=1") // the next one is due in half the time
				}
			}
		}
	}
}

// watchdogPeriod is WatchdogSec= of the unit of this process; 0: none (sd_watchdog_enabled(3)).
func watchdogPeriod() time.Duration {
	period, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if err != nil || period <= 0 || period > int64(24*time.Hour/time.Microsecond) || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	return time.Duration(period) * time.Microsecond
}
