package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

const docsFolder = "../../docs/"

// pages are all documents for users: README, CHANGELOG and the operators' pages.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(docsFolder + "*.md")
	if err != nil || len(all) < 5 {
		t.Fatalf("pages: %v, %v", all, err)
	}
	return append(all, "../../README.md", "../../CONTRIBUTING.md")
}

// pageOf is the page of a command below docs; empty: it has none.
func pageOf(cmd *cobra.Command) (page string) {
	home := map[string]string{ // the longest matching command path wins
		"weir nat": "nat.md", "weir lb": "lb-commands.md", "weir init": "lb.md", "weir check": "check.md", "weir explain": "check.md",
		"weir coap server": "coap-server.md", "weir coap certs": "coap-server.md", "weir coap upgrade": "coap-restart.md", "weir coap cluster": "coap-cluster-show.md", "weir coap cluster drain": "coap-cluster-move.md", "weir coap cluster undrain": "coap-cluster-move.md", "weir coap bench": "coap-bench.md", "weir coap bench-all": "coap-bench.md", "weir coap receive": "coap-bench.md", "weir coap check": "coap-check.md", "weir coap": "coap-clients.md",
		"weir demo": "demo.md", "weir bench": "bench.md", "weir bench ebpf": "bench-ebpf.md", "weir bench run dsr": "bench-datapaths.md",
		"weir bench run nfqueue": "bench-datapaths.md", "weir bench run floods": "bench-floods.md", "weir bench run dump": "bench-floods.md",
		"weir bench run soak": "bench-soak.md", "weir bench run restart": "bench-restart.md", "weir bench run chaos": "bench-chaos.md", "weir bench run idle-crash": "bench-idle-crash.md", "weir bench run failover": "bench-failover.md", "weir bench run kube-sessions": "bench-kubernetes.md", "weir bench run kube-scale": "bench-kubernetes.md", "weir lab": "lab.md", "weir lb rules": "rules.md",
		"weir turn cat": "turncat.md", "weir turn bench": "turn-bench.md", "weir turn": "turn.md",
		"weir turn gateway": "turn-config.md", "weir turn stunnerd": "turn-discovery.md", "weir turn auth": "turn-auth.md", "weir turn upgrade": "turn-restart.md", "weir turn export": "turn-restart.md", "weir turn import": "turn-restart.md",
		"weir sim": "sim.md", "weir snat": "snat-config.md", "weir snat rules": "snat.md", "weir snat lab": "snat-lab.md", "weir tcp": "tcp.md",
		"weir tcp server": "tcp-options.md", "weir tcp client": "tcp-options.md", "weir tcp bench": "tcp-bench.md", "weir tcp stats": "tcp-stats.md", "weir doctor": "doctor.md", "weir operator": "kubernetes-l4.md", "weir api": "api.md", "weir man": "commands.md", "weir completion": "commands.md",
	}
	for at := cmd; at != nil && page == ""; at = at.Parent() {
		page = home[at.CommandPath()]
	}
	return page
}

// Every command has its page, and each of its flags is described there.
func TestEveryFlagIsOnItsPage(t *testing.T) {
	shared := map[string]bool{"help": true}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			walk(child)
		}
		if cmd.Hidden && cmd.Name() != "stunnerd" || cmd.HasSubCommands() || cmd.Name() == "version" {
			return
		}
		page := pageOf(cmd)
		if page == "" {
			t.Errorf("%s has no page", cmd.CommandPath())
			return
		}
		text := clitest.ReadPage(t, docsFolder+page)
		if cmd.CommandPath() == "weir tcp bench" { // the flags of its lab
			text += clitest.ReadPage(t, docsFolder+"tcp-balancer.md")
		}
		if cmd.CommandPath() == "weir turn bench" { // those of --platform k8s
			text += clitest.ReadPage(t, docsFolder+"turn-bench-kubernetes.md")
		}
		if cmd.CommandPath() == "weir operator" { // those about TURN gateways
			text += clitest.ReadPage(t, docsFolder+"kubernetes-turn.md")
		}
		if !strings.Contains(text, cmd.CommandPath()) {
			t.Errorf("%s does not name %s", page, cmd.CommandPath())
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !shared[f.Name] && !f.Hidden && !regexp.MustCompile("--"+f.Name+`\b[^-]`).MatchString(text) {
				t.Errorf("%s does not describe --%s of %s", page, f.Name, cmd.CommandPath())
			}
		})
	}
	walk(clitest.Root())
}

// Every key that a configuration file may hold is on the page of its part.
func TestEveryKeyIsOnItsPage(t *testing.T) {
	for _, part := range []struct {
		page string
		spec any
		more []string // pages for some of the keys
	}{
		{"options.md", lb.Spec{}, nil},
		{"options.md", node.Config{}, nil},
		{"options.md", gateway.Config{}, nil},
		{"turn-stunner.md", stunnerd.Config{}, nil},
		{"options.md", snat.File{}, nil},
	} {
		page, spec := part.page, part.spec
		text := clitest.ReadPage(t, docsFolder+page)
		for _, other := range part.more {
			text += clitest.ReadPage(t, docsFolder+other)
		}
		count := 0
		var walk func(typ reflect.Type)
		walk = func(typ reflect.Type) {
			for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
				typ = typ.Elem()
			}
			if typ.Kind() != reflect.Struct {
				return
			}
			for i := range typ.NumField() {
				field := typ.Field(i)
				key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
				if key == "" || key == "-" {
					continue
				}
				count++
				if !regexp.MustCompile(`\b` + key + `\b`).MatchString(text) {
					t.Errorf("%s does not describe the key %s", page, key)
				}
				walk(field.Type)
			}
		}
		walk(reflect.TypeOf(spec))
		if count < 10 {
			t.Errorf("%s: only %d keys found", page, count)
		}
	}
}

// What a page shows to type must be something that weir understands.
func TestEveryLineInTheDocsParses(t *testing.T) {
	fence := regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	command := regexp.MustCompile(`(?:^|\| )(?:sudo )?(?:\./)?(?:bin/)?weir ([^|]*)`)
	count := 0
	for _, page := range pages(t) {
		for _, block := range fence.FindAllStringSubmatch(clitest.ReadPage(t, page), -1) {
			if block[1] == "text" || block[1] == "yaml" {
				continue
			}
			for _, line := range strings.Split(block[2], "\n") {
				for _, found := range command.FindAllStringSubmatch(line, -1) {
					count++
					if err := parseLine(found[1]); err != nil {
						t.Errorf("%s: %s: %v", filepath.Base(page), line, err)
					}
				}
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d lines found: the test looks in the wrong place", count)
	}
}

// And so must every example in a command's own help.
func TestEveryExampleParses(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, line := range strings.Split(cmd.Example, "\n") {
			if _, rest, ok := strings.Cut(" "+strings.TrimSpace(line), " weir "); ok && !strings.Contains(line, "$(") && !strings.Contains(line, "<(") {
				if err := parseLine(rest); err != nil {
					t.Errorf("%s: %s: %v", cmd.CommandPath(), line, err)
				}
			}
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(clitest.Root())
}

// parseLine has cobra read what follows "weir " on a shell line, without running it.
func parseLine(line string) error {
	words := shellWords(line)
	cmd, rest, err := clitest.ParseOnly(words).Find(words)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	args := cmd.Flags().Args()
	if !cmd.HasParent() || len(args) > 0 && cmd.HasSubCommands() {
		return cli.NoSuchCommand(cmd, args)
	}
	return cmd.ValidateArgs(args)
}

// shellWords splits as a shell does, up to a pipe, a redirection or a comment. Quotes are single or double, without escapes.
func shellWords(line string) []string {
	var words []string
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		if strings.ContainsRune("#|<>&;", rune(line[0])) || strings.HasPrefix(line, "2>") {
			break
		}
		var word strings.Builder
		for line != "" && line[0] != ' ' {
			if quote := line[0]; quote == '"' || quote == '\'' {
				inside, rest, _ := strings.Cut(line[1:], string(quote))
				word.WriteString(inside)
				line = rest
				continue
			}
			word.WriteByte(line[0])
			line = line[1:]
		}
		words = append(words, word.String())
	}
	return words
}

// A link between documents leads somewhere.
func TestLinksInTheDocsLead(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(clitest.ReadPage(t, page), -1) {
			path, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link to %s: %v", filepath.Base(page), found[1], err)
				continue
			}
			if anchor != "" && !strings.Contains(headings(clitest.ReadPage(t, target)), "#"+anchor+"\n") {
				t.Errorf("%s: %s has no heading for #%s", filepath.Base(page), path, anchor)
			}
		}
	}
}

// headings are the anchors of a page, one in a line, as forges make them.
func headings(text string) string {
	var all strings.Builder
	for _, line := range strings.Split(text, "\n") {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(title), "")
			all.WriteString("#" + strings.ReplaceAll(title, " ", "-") + "\n")
		}
	}
	return all.String()
}

// No line that a reader copies has a word that zsh takes for a pattern: it refuses one that matches no file.
func TestLinesAreNoPatternsOfZsh(t *testing.T) {
	lines := map[string]string{}
	for _, path := range pages(t) {
		for _, block := range readBlocks(t, path) {
			if block.language == "" || block.language == "sh" {
				for i, line := range strings.Split(block.text, "\n") {
					if command, ok := strings.CutPrefix(line, "$ "); ok || strings.HasPrefix(strings.TrimPrefix(line, "sudo "), "weir ") {
						lines[block.at(i+1)] = command
					}
				}
			}
		}
	}
	for _, cmd := range commands() {
		for i, line := range strings.Split(cmd.Example, "\n") {
			if strings.Contains(line, "weir ") {
				lines[fmt.Sprintf("%s --help, example %d", cmd.CommandPath(), i+1)] = line
			}
		}
	}
	if len(lines) < 200 {
		t.Errorf("only %d lines", len(lines))
	}
	for at, line := range lines {
		if pattern := zshPattern(line); pattern != "" {
			t.Errorf("%s: quote %q in: %s", at, pattern, line)
		}
	}
}

// zshPattern returns the first character outside of quotes and comments that makes a word a pattern; "" if there is none.
func zshPattern(line string) string {
	quote := rune(0)
	before := ' '
	for i, c := range line {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '#' && before == ' ':
			return ""
		case strings.ContainsRune("?*[", c) && before != '$' && before != '\\' && !strings.HasPrefix(line[i:], "[ ") && !strings.HasPrefix(line[i:], "[["):
			return string(c)
		}
		before = c
	}
	return ""
}
