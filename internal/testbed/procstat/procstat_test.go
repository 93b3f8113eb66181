package procstat_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/procstat"
)

func TestSelfGrowsWithWorkAndMemory(t *testing.T) {
	before, err := procstat.Self()
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 32<<20)
	after := before
	for after.CPU-before.CPU < 20*time.Millisecond { // ends by work done, however slow the machine
		for i := range block {
			block[i] += byte(i)
		}
		if after, err = procstat.Self(); err != nil {
			t.Fatal(err)
		}
	}
	if after.PeakBytes < before.ResidentBytes+16<<20 || after.ResidentBytes == 0 || after.Threads < 1 {
		t.Errorf("after touching 32 MB: %+v, before: %+v", after, before)
	}
}

func TestOfAnotherProcess(t *testing.T) {
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; read -r line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil { // the loop has ended
		t.Fatal(err)
	}
	usage, err := procstat.Of(cmd.Process.Pid)
	if err != nil || usage.CPU <= 0 || usage.ResidentBytes == 0 || usage.PeakBytes < usage.ResidentBytes {
		t.Errorf("usage %+v, %v", usage, err)
	}
	in.Close()
	if err := cmd.Wait(); err == nil {
		t.Log("shell ended")
	}
	if usage, err := procstat.Of(cmd.Process.Pid); err == nil {
		t.Errorf("an ended process has usage %+v", usage)
	}
}
