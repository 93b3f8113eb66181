package clitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
)

// Execute runs one command line and returns what it wrote to standard output.
func Execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := Root()
	root.SetOut(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// Weir runs a command line in this process and returns what it wrote and its exit code.
func Weir(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var b bytes.Buffer
	root := Root()
	root.SetArgs(args)
	root.SetOut(&b)
	root.SetErr(&b)
	err := root.ExecuteContext(t.Context())
	if err == nil {
		return b.String(), 0
	}
	code = cli.ExitFailure
	var exit *cli.ExitError
	if errors.As(err, &exit) {
		code = exit.Code
	}
	if exit == nil || exit.Err != nil {
		fmt.Fprintf(&b, "weir: %v\n", err)
	}
	return b.String(), code
}

// DrawsReportAgain sees that `weir bench report` makes the same page of results as the run that printed them as JSON, and returns it.
func DrawsReportAgain(t *testing.T, results, page string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "results.json")
	Must(t, os.WriteFile(file, []byte(results), 0o600))
	again, err := Execute(t, "bench", "report", file, "-o", "-")
	Must(t, err)
	first, err := os.ReadFile(page)
	Must(t, err)
	if again != string(first) {
		t.Error("the report drawn again differs")
	}
	return again
}

// WantWeir runs a command that ends with a code and returns what it wrote.
func WantWeir(t *testing.T, want int, args ...string) string {
	t.Helper()
	out, code := Weir(t, args...)
	if code != want {
		t.Errorf("weir %s: exit code %d, want %d\n%s", strings.Join(args, " "), code, want, out)
	}
	return out
}

func ExitCode(err error) int {
	var exit *cli.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	}
	return cli.ExitFailure
}

// ReadStrictly decodes what a command or the admin API has printed. A key that the public type does not have is an error.
func ReadStrictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// RefusesWithoutPeer runs a comparison with a peer that is not installed: it says where the program comes from and which variable
// names it.
func RefusesWithoutPeer(t *testing.T, variable string, args ...string) {
	t.Helper()
	t.Log("the peer is not installed")
	if _, err := Execute(t, args...); err == nil || !strings.Contains(err.Error(), "github.com/") || !strings.Contains(err.Error(), "set "+variable) {
		t.Errorf("%v: %v, want an error that says where the peer comes from and to set %s", args, err, variable)
	}
}

// Offered is what a shell gets for the last of the words: values with their descriptions, and what it may add by itself.
func Offered(t *testing.T, words ...string) (values []string, directive cobra.ShellCompDirective) {
	t.Helper()
	var out bytes.Buffer
	root := ParseOnly(words)
	root.SetOut(&out)
	root.SetErr(io.Discard) // the directive in words
	root.SetArgs(append([]string{"__complete"}, words...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := lines[len(lines)-1]
	n, err := strconv.Atoi(strings.TrimPrefix(last, ":"))
	if err != nil || !strings.HasPrefix(last, ":") {
		t.Fatalf("%v: %q", words, out.String())
	}
	return lines[:len(lines)-1], cobra.ShellCompDirective(n)
}

// Names are values without descriptions, and without words to the user.
func Names(values []string) (names []string) {
	for _, value := range values {
		if name, _, _ := strings.Cut(value, "\t"); !strings.HasPrefix(name, "_activeHelp_") {
			names = append(names, name)
		}
	}
	return names
}

// Root is weir with the families of the test binary.
func Root() *cobra.Command { return cli.NewRoot(tested) }

// ParseOnly is Root for a command line of one family: the other families have a name, and none of their commands, which take most of the
// time of a root. It is for tests that read hundreds of lines.
func ParseOnly(words []string) *cobra.Command {
	if len(words) < 2 || !slices.Contains(familyNames(), words[0]) {
		return Root()
	}
	only := slices.Clone(tested)
	for i, name := range familyNames() {
		if name != words[0] {
			only[i].Command = func() *cobra.Command { return &cobra.Command{Use: name} }
		}
	}
	return cli.NewRoot(only)
}

// familyNames are the names of the families of the test binary, in their order.
var familyNames = sync.OnceValue(func() (names []string) {
	for _, family := range tested {
		names = append(names, family.Command().Name())
	}
	return names
})
