package main

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// Every command has a page that man and its formatter show without a warning, with what --help says.
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
	shown := formatted(t, dir)
	shown["weir-lb-run"] = byMan(t, man, filepath.Join(dir, "weir-lb-run.1")) // one as a user sees it: each takes a tenth of a second
	pages := 0
	for _, cmd := range commands() {
		path := cmd.CommandPath()
		if cmd.Name() == "help" {
			continue
		}
		pages++
		name := strings.ReplaceAll(path, " ", "-")
		text := strings.Join(strings.Fields(shown[name]), " ")
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
				t.Errorf("%s lacks %q:\n%s", name, want, shown[name])
				break
			}
		}
	}
	files, err := filepath.Glob(dir + "/*.1")
	if err != nil || len(files) != pages || pages < 60 {
		t.Errorf("%d files for %d commands, %v", len(files), pages, err)
	}
}

// byMan is what man shows of a page.
func byMan(t *testing.T, man, page string) string {
	t.Helper()
	show := exec.Command(man, "--warnings", "-l", page)
	show.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=100", "MAN_KEEP_FORMATTING=", "PAGER=cat", "MANPAGER=cat")
	return withoutWarning(t, show)
}

// formatted are all pages by their names, from the formatter of man, with its options: one run of it takes as long as that of one page.
func formatted(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.1")
	clitest.Must(t, err)
	text := withoutWarning(t, exec.Command("groff", append([]string{"-mandoc", "-t", "-Tutf8", "-ww", "-rLL=100n", "-rLT=100n", "-P-cbou"}, files...)...))
	pages := map[string]string{}
	heads := regexp.MustCompile(`(?m)^(WEIR\S*)\(1\)`).FindAllStringSubmatchIndex(text, -1)
	for i, head := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		pages[strings.ToLower(text[head[2]:head[3]])] = text[head[0]:end]
	}
	return pages
}

func withoutWarning(t *testing.T, show *exec.Cmd) string {
	t.Helper()
	var out, warnings bytes.Buffer
	show.Stdout, show.Stderr = &out, &warnings
	if err := show.Run(); err != nil || warnings.Len() > 0 {
		t.Errorf("%v: %v\n%s", show.Args[:2], err, warnings.String())
	}
	return out.String()
}
