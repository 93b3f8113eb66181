package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// Each reason of the kernel's programs is one of the table, which has an action for each.
func TestTheKernelHasTheReasonsOfThePage(t *testing.T) {
	enum, err := os.ReadFile("../../internal/datapath/ebpf/bpf/types.h")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^\tREASON_([A-Z_]+),`).FindAllStringSubmatch(string(enum), -1) {
		if m[1] == "END" {
			continue
		}
		found++
		if _, ok := lb.ParseReason(strings.ToLower(m[1])); !ok {
			t.Errorf("REASON_%s is not a reason of lb", m[1])
		}
	}
	if found < 20 {
		t.Errorf("only %d reasons: types.h is read wrongly", found)
	}
}
