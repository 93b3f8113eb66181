package main

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// Every command has a page that man shows without a warning, with what --help says.
func TestManualPages(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	man, err := exec.LookPath("man")
	if err != nil {
		if os.Getenv("WEIR_ROOT") == "1" {
			t.Fatal(err)
		}
		t.Skip("no man here")
	}
	dir := filepath.Join(t.TempDir(), "man1")
	if _, err := clitest.Execute(t, "man", dir); err != nil {
		t.Fatal(err)
	}
	pages := 0
	for _, cmd := range commands() {
		path := cmd.CommandPath()
		if cmd.Name() == "help" {
			continue
		}
		pages++
		page := filepath.Join(dir, strings.ReplaceAll(path, " ", "-")+".1")
		show := exec.Command(man, "--warnings", "-l", page)
		show.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=100", "MAN_KEEP_FORMATTING=", "PAGER=cat", "MANPAGER=cat")
		var out, warnings bytes.Buffer
		show.Stdout, show.Stderr = &out, &warnings
		if err := show.Run(); err != nil || warnings.Len() > 0 {
			t.Errorf("%s: %v\n%s", page, err, warnings.String())
			continue
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		wanted := []string{"NAME", "SYNOPSIS " + path, "DESCRIPTION", cmd.Short, strings.Join(strings.Fields(cmp.Or(cmd.Long, cmd.Short))[:3], " ")}
		if !strings.HasPrefix(path, "weir completion") { // cobra's own have none
			wanted = append(wanted, "EXAMPLES")
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			wanted = append(wanted, strings.Join(strings.Fields(line), " "))
		}
		cmd.NonInheritedFlags().VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden && flag.Deprecated == "" {
				wanted = append(wanted, "--"+flag.Name)
			}
		})
		for _, want := range wanted {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", filepath.Base(page), want, out.String())
				break
			}
		}
	}
	files, err := filepath.Glob(dir + "/*.1")
	if err != nil || len(files) != pages || pages < 60 {
		t.Errorf("%d files for %d commands, %v", len(files), pages, err)
	}
}
