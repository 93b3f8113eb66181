package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// execute runs one command line and returns what it wrote to standard output.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetOut(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

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
	walk(newRootCommand())
	if count < 2 {
		t.Errorf("found %d commands", count)
	}
}

func TestVersionNamesTheGoVersion(t *testing.T) {
	out, err := execute(t, "version", "--json")
	var info buildInfo
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
		out, err := execute(t, way)
		if err != nil || out != info.String()+"\n" || !strings.Contains(out, runtime.Version()) || !strings.Contains(out, info.Kernel) {
			t.Errorf("weir %s: %q, %v", way, out, err)
		}
	}
}

func TestCompletionKnowsTheCommands(t *testing.T) {
	out, err := execute(t, "__complete", "ver")
	if err != nil || !strings.HasPrefix(out, "version") {
		t.Errorf("%q, %v", out, err)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out, err := execute(t, "completion", shell); err != nil || !strings.Contains(out, "weir") {
			t.Errorf("%s: %v", shell, err)
		}
	}
}

func TestMistakesAreUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"versin":            "did you mean version?",
		"version --no-such": "--no-such",
	} {
		_, err := execute(t, strings.Fields(line)...)
		var exit *exitError
		if !errors.As(err, &exit) || exit.code != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("weir %s: got %v, want a usage error with %q", line, err, want)
		}
	}
}
