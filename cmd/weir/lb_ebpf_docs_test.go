package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// The operator's page explains every reason that the kernel counts, with its action, in the order of lb.Reason.
func TestReasonsAreExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	enum, err := os.ReadFile("../../internal/datapath/ebpf/bpf/types.h")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^\tREASON_([A-Z_]+),`).FindAllStringSubmatch(string(enum), -1) {
		if m[1] == "END" {
			continue
		}
		reason, ok := lb.ParseReason(strings.ToLower(m[1]))
		if !ok {
			t.Errorf("REASON_%s is not a reason of lb", m[1])
		}
		want = append(want, reason.String()+" "+reason.Action().String())
	}
	_, table, _ := strings.Cut(string(page), "# Reasons")
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| .{5,} \\|$").FindAllStringSubmatch(table, -1) {
		got = append(got, m[1]+" "+m[2])
	}
	if len(want) < 20 || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("docs/reasons.md explains\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
