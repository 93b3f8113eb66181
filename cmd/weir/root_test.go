package main

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
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

// The first page of help leads to every family of commands.
func TestHelpNamesEveryFamily(t *testing.T) {
	root := clitest.Root()
	for _, family := range root.Commands() {
		switch name := family.Name(); name {
		case "help", "completion", "man", "version":
		default:
			if !regexp.MustCompile(`\b` + name + `\b`).MatchString(root.Long) {
				t.Errorf("weir --help does not say what %s is for", name)
			}
		}
	}
	long, err := clitest.Execute(t, "help", "lb", "run")
	if want, _ := clitest.Execute(t, "lb", "run", "--help"); err != nil || long != want {
		t.Errorf("weir help lb run is not weir lb run --help:\n%s\n%v", long, err)
	}
}

func TestMistakesAreUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"versin":            "did you mean version?",
		"lb statsu":         "did you mean status?",
		"lb run --cofnig x": "did you mean --config?",
		"help lbb":          "did you mean lab or lb?",
		"help lb strats":    "did you mean status",
		"version --no-such": "--no-such",
	} {
		_, err := clitest.Execute(t, strings.Fields(line)...)
		var exit *cli.ExitError
		if !errors.As(err, &exit) || exit.Code != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("weir %s: got %v, want a usage error with %q", line, err, want)
		}
	}
}
