package main

import (
	"slices"
	"strings"
	"testing"
)

// Under the name stunnerd, and with it as the first argument, weir has stunnerd's options.
func TestInvokedAsStunnerd(t *testing.T) {
	for line, want := range map[string]string{
		"/usr/bin/stunnerd -w -u 16": "turn stunnerd -w -u 16", "stunnerd": "turn stunnerd", "weir stunnerd -w": "turn stunnerd -w",
		"weir turn gateway stunnerd": "turn gateway stunnerd", "weir": "", "/x/stunnerd/weir version": "version",
	} {
		if got := arguments(strings.Fields(line)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q", line, got)
		}
	}
}
