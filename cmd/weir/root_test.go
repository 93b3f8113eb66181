package main

import (
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
)

func TestEveryCommandHasAnExampleThatNamesIt(t *testing.T) {
	count := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Runnable() {
			count++
			if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
				t.Errorf("%s: short help %q: want one line without a full stop", cmd.CommandPath(), cmd.Short)
			}
			if cmd.Parent() != nil && !strings.Contains(cmd.Example, cmd.CommandPath()) {
				t.Errorf("%s: its help has no example of it:\n%s", cmd.CommandPath(), cmd.Example)
			}
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(clitest.Root())
	if count < 2 {
		t.Errorf("found %d commands", count)
	}
}

func TestVersionNamesTheGoVersion(t *testing.T) {
	out, err := clitest.Execute(t, "version", "--json")
	var info cli.BuildInfo
	if err == nil {
		err = json.Unmarshal([]byte(out), &info)
	}
	if err != nil || info.Go != runtime.Version() || info.Version == "" {
		t.Errorf("%q: %+v, %v", out, info, err)
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil || info.Kernel != strings.TrimSpace(string(kernel)) {
		t.Errorf("kernel %q, want %q, %v", info.Kernel, kernel, err)
	}
	for _, way := range []string{"version", "--version"} {
		out, err := clitest.Execute(t, way)
		if err != nil || out != info.String()+"\n" || !strings.Contains(out, runtime.Version()) || !strings.Contains(out, info.Kernel) {
			t.Errorf("weir %s: %q, %v", way, out, err)
		}
	}
}

func TestCompletionKnowsTheCommands(t *testing.T) {
	out, err := clitest.Execute(t, "__complete", "ver")
	if err != nil || !strings.HasPrefix(out, "version") {
		t.Errorf("%q, %v", out, err)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out, err := clitest.Execute(t, "completion", shell); err != nil || !strings.Contains(out, "weir") {
			t.Errorf("%s: %v", shell, err)
		}
	}
}

func TestMistakesAreUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"versin":            "did you mean version?",
		"version --no-such": "--no-such",
	} {
		_, err := clitest.Execute(t, strings.Fields(line)...)
		var exit *cli.ExitError
		if !errors.As(err, &exit) || exit.Code != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("weir %s: got %v, want a usage error with %q", line, err, want)
		}
	}
}
