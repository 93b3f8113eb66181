package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// unitNeeds names, for each unit of the packages, the row of docs/privileges.md whose capabilities it has.
var unitNeeds = map[string]string{
	"weir-lb.service":        privilege.LBRunEBPF,
	"weir-coap.service":      "weir coap server",
	"weir-turn.service":      "weir turn gateway",
	"weir-tcp-stats.service": "weir tcp server, client, stats",
}

// maxExposure is what systemd-analyze security may find at most, of 100: "OK" begins below 50.
const maxExposure = "20"

// systemd finds nothing wrong with the units, and little that they leave open. They have the capabilities of the table, and no others.
func TestUnits(t *testing.T) {
	t.Parallel()
	netlabtest.Tools(t, "systemd-analyze")
	root := t.TempDir()
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) != len(unitNeeds) {
		t.Fatalf("%d units: %v", len(units), err)
	}
	for _, path := range []string{"usr/bin/weir", "bin/kill", "usr/bin/systemd-tmpfiles"} { // what the units start has to be there
		clitest.Must(t, os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755))
		clitest.Must(t, os.WriteFile(filepath.Join(root, path), []byte("#!/bin/sh\n"), 0o755))
	}
	systemd := filepath.Join(root, "usr/lib/systemd/system")
	clitest.Must(t, os.MkdirAll(systemd, 0o755))
	for _, target := range []string{"sysinit", "basic", "network-online", "multi-user", "shutdown"} {
		clitest.Must(t, os.WriteFile(filepath.Join(systemd, target+".target"), []byte("[Unit]\nDefaultDependencies=no\n"), 0o600))
	}
	var names []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		clitest.Must(t, err)
		name := filepath.Base(unit)
		names = append(names, name)
		clitest.Must(t, os.WriteFile(filepath.Join(systemd, name), text, 0o600))
		checkCapabilities(t, name, string(text))
	}
	analyze := func(args ...string) {
		t.Helper()
		out, err := exec.Command("systemd-analyze", append(args, names...)...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 { // unknown keys and values are warnings
			t.Errorf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	analyze("verify", "--man=no", "--root="+root)
	analyze("security", "--offline=true", "--no-pager", "--threshold="+maxExposure, "--root="+root)
}

// needsOf are the capabilities of a row of the table, sorted.
func needsOf(row string) (capabilities []string) {
	c, _ := privilege.Of(row)
	for _, need := range c.Needs {
		capabilities = append(capabilities, need.Capability)
	}
	slices.Sort(capabilities)
	return capabilities
}

func checkCapabilities(t *testing.T, name, unit string) {
	t.Helper()
	if _, known := privilege.Of(unitNeeds[name]); !known {
		t.Errorf("%s: no row %q in the table of privileges", name, unitNeeds[name])
	}
	want := needsOf(unitNeeds[name])
	for _, key := range []string{"CapabilityBoundingSet", "AmbientCapabilities"} {
		_, rest, found := strings.Cut(unit, "\n"+key+"=")
		line, _, _ := strings.Cut(rest, "\n")
		got := strings.Fields(line)
		slices.Sort(got)
		if !found || !slices.Equal(got, want) {
			t.Errorf("%s: %s is %q, want %q", name, key, got, want)
		}
	}
}

// Every configuration that the packages install is accepted as it is.
func TestInstalledConfigurationsAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../deploy/package/*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		if out, err := clitest.Execute(t, "check", file); err != nil {
			t.Errorf("weir check %s: %v\n%s", file, err, out)
		}
	}
}
