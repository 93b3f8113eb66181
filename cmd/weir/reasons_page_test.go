package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/turn/allocation"
)

// constant is a constant of Go with its comment.
type constant struct{ name, comment string }

// constantsFrom returns the constants of a file from first to last, with their comments, which must not be empty.
func constantsFrom(t *testing.T, path, first, last string) (all []constant) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			all = append(all, constant{spec.Names[0].Name, strings.Join(strings.Fields(spec.Doc.Text()), " ")})
		}
		return true
	})
	named := func(name string) int {
		return slices.IndexFunc(all, func(c constant) bool { return c.name == name })
	}
	all = all[named(first) : named(last)+1]
	for _, c := range all {
		if c.comment == "" {
			t.Errorf("%s: %s has no comment", path, c.name)
		}
	}
	return all
}

// meaning splits a comment, without the beginning, into what happened and what an operator can do.
func meaning(t *testing.T, comment, beginning string) (what, remedy string) {
	t.Helper()
	rest, ok := strings.CutPrefix(comment, beginning)
	if !ok {
		t.Errorf("the comment %q does not begin with %q", comment, beginning)
	}
	what, remedy, _ = strings.Cut(rest, " Remedy: ")
	return cell(sentence(what)), cell(sentence(remedy))
}

func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

var verbs = map[lb.Action]string{lb.Pass: "passes", lb.Forward: "forwards", lb.Hold: "holds", lb.Drop: "drops", lb.Answer: "answers"}

func balancerReasons(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| reason | action | meaning | what to do |\n|---|---|---|---|\n")
	for i, c := range constantsFrom(t, "../../internal/steering/lb/decision.go", "ReasonNotService", "ReasonUnmatched") {
		reason := lb.Reason(i + 1)
		what, remedy := meaning(t, c.comment, c.name+" "+verbs[reason.Action()]+": ")
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", reason, reason.Action(), what, remedy)
	}
	return b.String()
}

func gatewayReasons(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| reason | meaning | what to do |\n|---|---|---|\n")
	for i, c := range constantsFrom(t, "../../internal/turn/allocation/reason.go", "TryAlternate", "Moved") {
		what, remedy := meaning(t, c.comment, c.name+": ")
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", allocation.Reason(i+1), what, remedy)
	}
	const counts = "../../internal/turn/gateway/counts.go"
	text, err := os.ReadFile(counts)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range constantsFrom(t, counts, "reasonSendRefused", "reasonPeerError") {
		name := strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(strings.TrimPrefix(c.name, "reason"), "${1}_$2"))
		if !strings.Contains(string(text), `return "`+name+`"`) {
			t.Errorf("%s is not called %s", c.name, name)
		}
		what, remedy := meaning(t, c.comment, c.name+": ")
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, what, remedy)
	}
	return b.String()
}

func TestThePageOfReasonsIsCurrent(t *testing.T) {
	checkGenerated(t, "reasons.md", "reasons of packets", balancerReasons(t))
	checkGenerated(t, "reasons.md", "reasons of the gateway", gatewayReasons(t))
}

// scriptOf is the tables of reasons as a module for the dashboard.
func scriptOf(t *testing.T) string {
	t.Helper()
	b := strings.Builder{}
	b.WriteString("// Generated from the reasons of the code: go test ./cmd/weir -run '^TestTheReasonsOfTheDashboardAreCurrent$' -update\n")
	for _, table := range []struct{ name, what, rows string }{
		{"packetReasons", "reason: [action, meaning, remedy]", balancerReasons(t)}, {"gatewayReasons", "reason: [meaning, remedy]", gatewayReasons(t)},
	} {
		fmt.Fprintf(&b, "\n// %s\nexport const %s = {\n", table.what, table.name)
		for _, row := range strings.Split(strings.TrimSpace(table.rows), "\n")[2:] {
			cells := strings.Split(strings.Trim(row, "| "), " | ")
			for i, c := range cells {
				cells[i] = fmt.Sprintf("%q", strings.NewReplacer("`", "", "\\|", "|").Replace(strings.Trim(c, "| ")))
			}
			fmt.Fprintf(&b, "  %s: [%s],\n", strings.Trim(cells[0], `"`), strings.Join(cells[1:], ", "))
		}
		b.WriteString("};\n")
	}
	return b.String()
}

func TestTheReasonsOfTheDashboardAreCurrent(t *testing.T) {
	const path = "../../web/reasons.js"
	wanted := scriptOf(t)
	if text, err := os.ReadFile(path); err == nil && string(text) == wanted {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code says; write it again: go test ./cmd/weir -run '^%s$' -update", path, t.Name())
	}
	if err := os.WriteFile(path, []byte(wanted), 0o644); err != nil { //nolint:gosec // a page's script
		t.Fatal(err)
	}
}
