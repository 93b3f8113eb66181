package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/terminal/terminaltest"
)

// takesAnyFile are the flags and arguments for which a shell offers every file.
func takesAnyFile() []string {
	return []string{
		"--admin-token-file", "--token-file", "--source-token-file", "--stats-token-file", "--psk-file", "--ticket-secrets", "--credentials", "--file", "--output",
		"weir turn import", "weir lb import nfqlb",
	}
}

// Every value that has a name is offered, is what the help says, and files are offered for files only.
func TestEveryFlagAndArgumentCompletes(t *testing.T) {
	known := 0
	eachFlag(func(cmd *cobra.Command, flag *pflag.Flag) {
		words := strings.Fields(cmd.CommandPath())[1:]
		if flag.Value.Type() == "bool" || cmd.HasSubCommands() {
			return
		}
		values, directive := clitest.Offered(t, append(words, "--"+flag.Name, "")...)
		if directive&(cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveFilterFileExt|cobra.ShellCompDirectiveFilterDirs) == 0 &&
			!slices.Contains(takesAnyFile(), "--"+flag.Name) {
			t.Errorf("%s --%s: every file is offered", cmd.CommandPath(), flag.Name)
		}
		if directive != cobra.ShellCompDirectiveNoFileComp || flag.Name == "interface" || flag.Name == "admin" {
			return
		}
		help := flag.Usage + cmd.Long
		for _, name := range clitest.Names(values) {
			known++
			if !strings.Contains(help, name) && !strings.HasPrefix(name, "all:") && flag.Name != "reason" && flag.Name != "roads" && flag.Name != "cipher" {
				t.Errorf("%s --%s offers %s, of which the help says nothing", cmd.CommandPath(), flag.Name, name)
			}
		}
		for _, word := range listed(flag.Usage, clitest.Names(values)) {
			t.Errorf("%s --%s does not offer %s, which its help lists: %s", cmd.CommandPath(), flag.Name, word, flag.Usage)
		}
		// A help that lists words offers them.
		if list := strings.Contains(flag.Usage, " or ") && flagKind(flag) == "string" && len(values) == 0; list && !slices.Contains(freeText(), flag.Name) {
			t.Errorf("%s --%s offers nothing: %s", cmd.CommandPath(), flag.Name, flag.Usage)
		}
	})
	if known < 150 {
		t.Errorf("only %d values", known)
	}
	for _, cmd := range commands() {
		path := cmd.CommandPath()
		if cmd.HasSubCommands() || strings.HasPrefix(path, "weir completion") || path == "weir help" {
			continue
		}
		if _, directive := clitest.Offered(t, append(strings.Fields(path)[1:], "")...); directive == cobra.ShellCompDirectiveDefault && !slices.Contains(takesAnyFile(), path) {
			t.Errorf("%s: every file is offered", path)
		}
	}
}

// listed returns the words that a help text has in one list with two of the values that are offered, and that are not offered.
func listed(usage string, offered []string) (missing []string) {
	list := regexp.MustCompile(`[a-z0-9-]+(?:(?:, and|, or|,| or| and) [a-z0-9-]+)+`)
	for _, words := range list.FindAllString(usage, -1) {
		here, others := 0, []string(nil)
		for _, word := range regexp.MustCompile(`,? (?:or |and )?`).Split(words, -1) {
			if slices.Contains(offered, word) {
				here++
			} else if !slices.Contains([]string{"a", "as", "before"}, word) { // the sentence goes on
				others = append(others, word)
			}
		}
		if here >= 2 {
			missing = append(missing, others...)
		}
	}
	return missing
}

// freeText are flags whose values only the user knows.
func freeText() []string {
	return []string{
		"client", "host", "src", "from", "queue", "secret", "psk", "size-limit", "vip", "backend", "packet", "override", "stats", "listen", "to", "peers",
		"tcp-peers", "metrics", "bandwidths", "service", "user", "listener", "only", "bandwidth", "most", "rates", "sources", "serve-stats", "source-ports", "admin-host",
	}
}

func TestCompletionOfValues(t *testing.T) {
	for _, c := range [][2]string{
		{"check -c |", "yaml yml json :8"},
		{"explain |", "yaml yml json :8"},
		{"explain a.yaml --pcap |", "pcap pcapng :8"},
		{"lb run --pin-path |", ":16"},
		{"lb run --datapath n|", "nfqueue :4"},
		{"lb run --fast |", "auto on off :4"},
		{"lb run --interface lo,|", "! lo,lo"},
		{"lb run -i l|", "lo"},
		{"lb trace --reason no_backend,flow_table_|", "no_backend,flow_table_full :4"},
		{"coap get --method P|", "POST PUT PATCH :4"},
		{"coap get c|", "coap:// coaps:// coap+tcp:// coaps+tcp:// :6"},
		{"bench run floods --with coturn,con|", "coturn,conntrack :4"},
		{"snat plan aws|", "aws-nat aws-regional :4"},
		{"snat plan ./|", "yaml yml json :8"},
		{"snat plan aws-nat |", ":4"},
		{"turn bench --with |", "coturn stunnerd :4"},
		{"turn cat udp://127.0.0.1:1 turn|", "turn: turns: :6"},
		{"lab up ds|", "dsr :4"},
		{"lab exec chain |", "client r1 lb r2 backend :4"},
		{"lb flows --sort expires --state e|", "established :4"},
		{"bench run nfqueue --loads tcp,tc|", "tcp,tcp8 tcp,tcp8-sources :4"},
		{"tcp bench --report |", "html :8"},
		{"demo --clients |", ":4"},
		{"version |", ":4"},
		{"nat :5784 |", ":4"},
		{"doctor --datapath |", "nfqueue ebpf udp :4"},
	} {
		line, want := c[0], c[1]
		words := strings.Split(strings.TrimSuffix(line, "|"), " ")
		values, directive := clitest.Offered(t, words...)
		got := strings.Join(append(clitest.Names(values), fmt.Sprintf(":%d", directive)), " ")
		if unwanted, not := strings.CutPrefix(want, "! "); not {
			if slices.Contains(clitest.Names(values), unwanted) {
				t.Errorf("weir %s: %s", line, got)
			}
			continue
		}
		if want == "lo" && slices.Contains(clitest.Names(values), "lo") {
			continue
		}
		if got != want {
			t.Errorf("weir %s: %s, want %s", line, got, want)
		}
	}
}

// The names of a running balancer's services and backends, with how they are.
func TestCompletionOfLiveNames(t *testing.T) {
	p := clitest.Start(t, "lb", "lb", "run", completionConfig(t), "--metrics", "")
	at := "--admin=unix:" + p.Socket
	for line, want := range map[string]string{
		"lb drain |":                         "coaps coaps/a coaps/b web web/a",
		"lb undrain coaps/|":                 "coaps/a coaps/b",
		"lb down w|":                         "web web/a",
		"lb up coaps/a |":                    "",
		"lb show |":                          "coaps web",
		"lb flows --service |":               "coaps web",
		"lb flows --backend |":               "a b",
		"lb flows --service web --backend |": "a",
		"lb trace --service c|":              "coaps",
	} {
		words := strings.Split(strings.TrimSuffix(line, "|"), " ")
		values, directive := clitest.Offered(t, slices.Insert(words, 2, at)...)
		if got := strings.Join(clitest.Names(values), " "); got != want || directive != cobra.ShellCompDirectiveNoFileComp {
			t.Errorf("weir %s: %q (%d), want %q", line, got, directive, want)
		}
	}
	if _, err := clitest.Execute(t, "lb", "drain", "coaps/a", at); err != nil {
		t.Fatal(err)
	}
	values, _ := clitest.Offered(t, "lb", "undrain", at, "coaps/")
	if want := []string{"coaps/a\tdraining, 0 % of new flows", "coaps/b\tup, 100 % of new flows"}; !slices.Equal(values, want) {
		t.Errorf("%q, want %q", values, want)
	}
	p.Stop()
	values, directive := clitest.Offered(t, "lb", "drain", at, "")
	if len(clitest.Names(values)) != 0 || len(values) != 1 || !strings.Contains(values[0], "no program answers there") || directive != cobra.ShellCompDirectiveNoFileComp {
		t.Errorf("without a balancer: %q (%d)", values, directive)
	}
}

// An address where no program answers holds a shell for a second, not for ever.
func TestCompletionDoesNotWait(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	started := time.Now()
	if values, _ := clitest.Offered(t, "lb", "drain", "--admin="+silent.Addr().String(), ""); len(clitest.Names(values)) != 0 {
		t.Errorf("%q", values)
	}
	if took := time.Since(started); took > 10*time.Second { // the machine may be busy; a client waits for longer
		t.Errorf("a shell was held for %s", took)
	}
}

func completionConfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	ports := clitest.FreeAddresses(t, 2)
	port := func(i int) string { return ports[i][strings.LastIndexByte(ports[i], ':')+1:] }
	text := fmt.Sprintf(`hash_key: 00112233445566778899aabbccddeeff
maglev_size: 1009
services:
- name: coaps
  vips: [{address: 127.0.0.1, protocol: udp, port: %s}]
  backends:
  - {name: a, address: 127.0.0.1, port: 5684}
  - {name: b, address: 127.0.0.1, port: 5685}
- name: web
  vips: [{address: 127.0.0.1, protocol: udp, port: %s}]
  backends: [{name: a, address: 127.0.0.1, port: 5686}]
`, port(0), port(1))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// typeCompletions presses the tab key in a shell that shows "ready>": a command, backends of a running balancer, a value.
// list are the keys that make this shell list what fits.
func typeCompletions(t *testing.T, s *terminaltest.Screen, socket string, list []string) {
	t.Helper()
	s.Wait("a prompt", func(text string) bool { return strings.Contains(text, "ready>") })
	s.Type("weir lb dr", "Tab")
	s.Wait("the command", func(text string) bool { return strings.Contains(text, "weir lb drain") })
	s.Type(append([]string{" --admin unix:" + socket + " coaps/"}, list...)...)
	s.Wait("the backends of the running balancer", func(text string) bool {
		return strings.Contains(text, "coaps/a") && strings.Contains(text, "coaps/b")
	})
	s.Type("b", "Enter")
	s.Wait("the drain", func(text string) bool { return strings.Contains(text, "coaps/b: drained") })
	s.Type("weir lb run --datapath e", "Tab")
	s.Wait("a value", func(text string) bool { return strings.Contains(text, "--datapath ebpf") })
	s.Type("C-u", "exit", "Enter")
	s.Ended()
}

// In real shells, with the tab key, set up as docs/commands.md says.
func TestCompletionInShells(t *testing.T) {
	const library = "/usr/share/bash-completion/bash_completion"
	for _, shell := range []struct {
		name, needs string
		file, start string   // its start file, relative to a home of its own
		args        []string // %s: the start file
		list        []string
	}{
		{"bash", library, "rc", ". " + library + "\n. <(weir completion bash)\nPS1='ready> '\n", []string{"--noprofile", "--rcfile", "%s", "-i"}, []string{"Tab", "Tab"}},
		{"zsh", "", ".zshrc", "autoload -U compinit; compinit -u\n. <(weir completion zsh)\nPS1='ready> '\n", []string{"-d", "-i"}, []string{"Tab"}},
		{"fish", "", ".config/fish/config.fish", "weir completion fish | source\nfunction fish_prompt; echo -n 'ready> '; end\n", []string{"-i"}, []string{"Tab"}},
	} {
		t.Run(shell.name, func(t *testing.T) {
			program := needShell(t, shell.name, shell.needs)
			p := clitest.Start(t, "lb", "lb", "run", completionConfig(t), "--metrics", "")
			home := t.TempDir()
			start := filepath.Join(home, shell.file)
			if err := errors.Join(os.MkdirAll(filepath.Join(home, ".local/share/fish/generated_completions"), 0o700), // else fish makes them, in the background
				os.Symlink(os.Args[0], filepath.Join(home, "weir")), os.MkdirAll(filepath.Dir(start), 0o700),
				os.WriteFile(start, []byte(shell.start), 0o600)); err != nil {
				t.Fatal(err)
			}
			command := []string{"env", "HOME=" + home, "PATH=" + home + ":" + os.Getenv("PATH"), "ZDOTDIR=" + home, "XDG_CONFIG_HOME=" + home + "/.config", program}
			for _, arg := range shell.args {
				command = append(command, strings.ReplaceAll(arg, "%s", start))
			}
			typeCompletions(t, terminaltest.Start(t, 100, 30, command...), p.Socket, shell.list)
		})
	}
}

// needShell is the program of a shell; a test that may not install it, and the file it needs, is skipped.
func needShell(t *testing.T, name, file string) string {
	t.Helper()
	program, err := exec.LookPath(name)
	if err == nil && file != "" {
		_, err = os.Stat(file)
	}
	if err != nil {
		if os.Getenv("WEIR_ROOT") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return program
}
