package procstat

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	busy, stolen, err := parseStat([]byte("cpu  10 20 30 40 50 60 70 80 0 0\ncpu0 1 1 1 1\n"))
	if err != nil || busy != 1900*time.Millisecond || stolen != 800*time.Millisecond {
		t.Errorf("busy %v, stolen %v, %v", busy, stolen, err)
	}
	for _, bad := range []string{"", "cpu 1 2", "cpu0 1 2 3 4 5 6 7 8", "cpu a b c d e f g h"} {
		if _, _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestParseProcess(t *testing.T) {
	p, err := parseProcess([]byte("42 (a) b (c) S 7 41 0 0 -1 0 0 0 0 0 100 200 3 4 20 0 1 0 5"))
	if err != nil || p != (process{pid: 42, group: 41, spent: 3070 * time.Millisecond}) {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := parseProcess([]byte("15 (ksoftirqd/0) S 2 0 0 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 5")); err != nil || !p.kernel || !p.packets {
		t.Errorf("a kernel thread: %+v, %v", p, err)
	}
	if p, err := parseProcess([]byte("16 (napi/x) S 1 2 0 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 5")); err != nil || p.kernel || p.packets {
		t.Errorf("a program named like one: %+v, %v", p, err)
	}
	for _, bad := range []string{"", "1", ")(", "x (y) S 1 2 3", "1 (y) S 1 2 3", "1 (y) S a 41 0 0 -1 0 0 0 0 0 1 2 3 4 20"} {
		if _, err := parseProcess([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestReadMachineDistinguishesOursFromOthers(t *testing.T) {
	self := os.Getpid()
	for start := time.Now(); ; { // spend a few ticks, however busy the machine is
		if spent, err := CPU(self); err != nil || spent > 50*time.Millisecond {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatal("no processor time in a minute")
		}
	}
	mine, err := ReadMachine(func(pid, _ int) bool { return pid == self })
	if err != nil {
		t.Fatal(err)
	}
	all, err := ReadMachine(func(int, int) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if mine.Busy <= 0 || mine.Ours <= 0 || all.Others != 0 || all.Ours < mine.Ours {
		t.Errorf("only us: %+v; all: %+v", mine, all)
	}
}
