package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// commands are all commands of the tree that users see, cobra's own ones too.
func commands() []*cobra.Command {
	root := clitest.Root()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	var all []*cobra.Command
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		cmd.InitDefaultHelpFlag()
		all = append(all, cmd)
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root)
	return all
}

// eachFlag calls f for every flag that the help shows.
func eachFlag(f func(cmd *cobra.Command, flag *pflag.Flag)) {
	for _, cmd := range commands() {
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden && flag.Deprecated == "" {
				f(cmd, flag)
			}
		})
	}
}

func TestAShorthandMeansOneFlag(t *testing.T) {
	first := map[string]string{}
	eachFlag(func(cmd *cobra.Command, flag *pflag.Flag) {
		if flag.Shorthand == "" || flag.ShorthandDeprecated != "" {
			return
		}
		at := "--" + flag.Name + " in " + cmd.CommandPath()
		if name, _, _ := strings.Cut(first[flag.Shorthand], " "); name != "" && name != "--"+flag.Name {
			t.Errorf("-%s is %s, and %s", flag.Shorthand, first[flag.Shorthand], at)
		}
		first[flag.Shorthand] = at
	})
	for shorthand, name := range map[string]string{"c": "config", "i": "interface", "q": "quiet", "w": "watch", "h": "help"} {
		eachFlag(func(cmd *cobra.Command, flag *pflag.Flag) {
			if flag.Name == name && flag.Shorthand != shorthand {
				t.Errorf("--%s of %s is not -%s", name, cmd.CommandPath(), shorthand)
			}
		})
	}
}

// flagKind is how the value of a flag is written: a list of texts is written as one text is, and any number as a number.
func flagKind(flag *pflag.Flag) string {
	switch kind := strings.TrimSuffix(strings.TrimSuffix(flag.Value.Type(), "Slice"), "Array"); kind {
	case "int", "int64", "uint", "uint32", "uint64", "float64":
		return "number"
	default:
		return kind
	}
}

func TestFlagsOfOneNameHaveOneType(t *testing.T) {
	kinds, firsts := map[string]string{}, map[string]string{}
	eachFlag(func(cmd *cobra.Command, flag *pflag.Flag) {
		at, kind := cmd.CommandPath(), flagKind(flag)
		if was := kinds[flag.Name]; was != "" && was != kind {
			t.Errorf("--%s is a %s in %s, and a %s in %s", flag.Name, was, firsts[flag.Name], kind, at)
		}
		kinds[flag.Name], firsts[flag.Name] = kind, at
		for name, words := range map[string]string{"config": "configuration file", "quiet": cli.QuietUsage, "watch": "again and again", "json": "print "} {
			if flag.Name == name && !strings.HasPrefix(flag.Usage, words) {
				t.Errorf("--%s of %s: %q does not begin with %q, as elsewhere", name, at, flag.Usage, words)
			}
		}
	})
	if len(kinds) < 100 {
		t.Errorf("only %d flags found", len(kinds))
	}
}

func TestDurationsHaveAUnit(t *testing.T) {
	count := 0
	eachFlag(func(cmd *cobra.Command, flag *pflag.Flag) {
		if _, ours := flag.Value.(cli.Duration); !ours {
			text := strings.ToLower(flag.Name + " " + flag.Usage)
			if flag.Value.Type() == "duration" || flagKind(flag) == "number" && strings.Contains(text, "second") && !strings.Contains(text, "per second") && !strings.Contains(text, "a second") {
				t.Errorf("--%s of %s is a time without being of type duration: %s", flag.Name, cmd.CommandPath(), flag.Usage)
			}
			return
		}
		count++
		for text, want := range map[string]string{"30": "write 30s, not 30", "1.5": "write 1.5s, not 1.5", "soon": "such as 500ms, 30s or 2h"} {
			err := flag.Value.Set(text)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s --%s %s: %v", cmd.CommandPath(), flag.Name, text, err)
			}
		}
		for _, text := range []string{"0", "90s", "1m30s"} {
			if err := flag.Value.Set(text); err != nil {
				t.Errorf("%s --%s %s: %v", cmd.CommandPath(), flag.Name, text, err)
			}
		}
	})
	if count < 40 {
		t.Errorf("only %d durations found", count)
	}
	var exit *cli.ExitError
	if _, err := clitest.Execute(t, "demo", "--duration", "30"); !errors.As(err, &exit) || exit.Code != cli.ExitUsage || !strings.Contains(err.Error(), `invalid argument "30" for "--duration" flag: write 30s, not 30`) {
		t.Errorf("got %v", err)
	}
}

// notConfigurations are the commands that take another kind of FILE.
func notConfigurations() []string {
	return []string{"weir init", "weir lb import nfqlb", "weir turn import", "weir bench report"} // writes one; nfqlb's; sessions; results
}

func TestAConfigurationIsAFlagOrAnArgument(t *testing.T) {
	count := 0
	for _, cmd := range commands() {
		has, path := cmd.Flags().Lookup("config") != nil, cmd.CommandPath()
		if takes := strings.Contains(cmd.Use, "FILE") && !slices.Contains(notConfigurations(), path); takes != has {
			t.Errorf("%s: the usage %q, and -c: %t", path, cmd.Use, has)
		}
		if !has {
			continue
		}
		count++
		words := strings.Fields(path)[1:]
		switch path {
		case "weir explain":
			words = append(words, "--packet", "udp 10.0.0.1:5000 > 192.0.2.1:5684")
		case "weir turn gateway":
			words = append(words, "--check") // no supervisor
		}
		missing := filepath.Join(t.TempDir(), "no.yaml")
		outcome := func(args ...string) (string, int) {
			_, err := clitest.Execute(t, append(slices.Clone(words), args...)...)
			var exit *cli.ExitError
			if err == nil {
				return "", 0
			}
			if errors.As(err, &exit) {
				return err.Error(), exit.Code
			}
			return err.Error(), cli.ExitFailure
		}
		byFlag, flagCode := outcome("-c", missing)
		if !strings.Contains(byFlag, missing) || !strings.Contains(byFlag, "no such file") {
			t.Errorf("%s -c %s: %q", path, missing, byFlag)
		}
		for _, args := range [][]string{{missing}, {"--config", missing}, {"-c", missing, missing}, {missing, "-c", missing}} {
			if text, code := outcome(args...); text != byFlag || code != flagCode {
				t.Errorf("%s %v: %q (%d); with -c %q (%d)", path, args, text, code, byFlag, flagCode)
			}
		}
		text, code := outcome("-c", "other.yaml", missing)
		if code != cli.ExitUsage || text != "two configuration files, -c other.yaml and "+missing+"; name one" {
			t.Errorf("%s with two files: %q (%d)", path, text, code)
		}
		if text, code := outcome(missing, "other.yaml"); code != cli.ExitUsage {
			t.Errorf("%s with two arguments: %q (%d)", path, text, code)
		}
	}
	if count < 10 {
		t.Errorf("only %d commands take a configuration", count)
	}
}

// Old spellings do what the new ones do, and say so on standard error only.
func TestOldSpellings(t *testing.T) {
	for line, want := range map[string]string{
		"demo --seconds 3600.5":                          "--duration 1h0m0.5s",
		"bench run dsr --seconds 0":                      "0s for each load",
		"bench run floods --for 1h":                      "--duration 1h0m0s",
		"turn bench -t 0":                                "--duration 0s",
		"tcp client --payload 5000 --to 127.0.0.1:1":     "payload",
		"tcp doctor --sources=-1":                        "--source-addresses -1",
		"nat :9 127.0.0.1:1 --nodes 1,2 --cid-length 6":  "node",
		"turn gateway --dry-run -c /no.yaml":             "/no.yaml",
		"lb rules --protocol 9999999 -c /no.yaml":        "/no.yaml",
		"turn gateway -d -c /no.yaml --log neither/nor":  "neither",
		"turn bench -n 0 -s 100 -b 1M -p local -t 1":     "0",
		"turn cat -i udp://127.0.0.1:0 no://x udp://x:1": "TURN URI",
	} {
		var out, errOut bytes.Buffer
		root := clitest.Root()
		root.SetOut(&out)
		root.SetErr(&errOut)
		root.SetArgs(strings.Fields(line))
		cmd, err := root.ExecuteContextC(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("weir %s: %v, want %s", line, err, want)
		}
		if !strings.Contains(out.String()+errOut.String(), "deprecated, write --") {
			t.Errorf("weir %s: not a word on the new spelling", line)
		}
		if help := cmd.UsageString(); strings.Contains(help, "--seconds") || strings.Contains(help, "--dry-run") {
			t.Errorf("the old flag is in the help of %s", cmd.CommandPath())
		}
	}
}

// A time in a file has its unit, too: no key of a configuration that names a time is a number, and none takes one.
func TestTimesInFilesHaveAUnit(t *testing.T) {
	names := regexp.MustCompile(`timeout|interval|period|lifetime|second|_after|idle|ttl|hold_|every|^tcp_|^udp$`)
	seen, types := map[reflect.Type]bool{}, map[reflect.Type]string{}
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			field := typ.Field(i)
			key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if key == "" || key == "-" {
				continue
			}
			of := field.Type
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			switch {
			case of == reflect.TypeFor[time.Duration](), of == reflect.TypeFor[lb.Timeout]():
				types[of] = key
			case names.MatchString(key) && of.Kind() >= reflect.Int && of.Kind() <= reflect.Float64:
				t.Errorf("%s of %v is a %v", key, typ, of)
			}
			walk(field.Type)
		}
	}
	for _, file := range []any{lb.Spec{}, node.Config{}, gateway.Config{}, stunnerd.Config{}, snat.File{}} {
		walk(reflect.TypeOf(file))
	}
	if len(types) != 2 {
		t.Errorf("times found: %v", types)
	}
	type file struct {
		Time    time.Duration `yaml:"time"`
		Timeout lb.Timeout    `yaml:"timeout"`
	}
	for _, key := range []string{"time", "timeout"} {
		if _, _, err := config.Decode[file]("weir.yaml", []byte(key+": 30s\n")); err != nil {
			t.Error(err)
		}
		if _, _, err := config.Decode[file]("weir.yaml", []byte(key+": 30\n")); err == nil || !strings.Contains(err.Error(), "write a number with its unit, such as") {
			t.Errorf("%s: 30: %v", key, err)
		}
	}
}
