package terminaltest

import (
	"strings"
	"testing"
)

// What a program prints last, and how it ends, is never lost, however late the terminal reads it.
func TestTheEndIsRead(t *testing.T) {
	for range 10 {
		code, text := Start(t, 80, 24, "sh", "-c", "seq 3000; exit 3").Ended()
		if code != 3 || !strings.HasSuffix(text, "\n2999\n3000") {
			t.Fatalf("exit code %d, %d lines", code, strings.Count(text, "\n")+1)
		}
	}
}

func TestASignalEndsTheProgram(t *testing.T) {
	s := Start(t, 80, 24, "sh", "-c", "echo here; exec sleep infinity")
	s.Wait("here", func(text string) bool { return text == "here" })
	s.Type("C-c")
	if code, text := s.Ended(); code != 128+2 || text != "here\n^C" {
		t.Errorf("exit code %d:\n%s", code, text)
	}
}
