package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/events"
)

// logged is what the code logs under one name.
type logged struct {
	name, message string
	levels        []string
	attributes    []string
	packages      []string
}

// logger is what a call's receiver looks like: log, s.log, config.Log.
var logger = regexp.MustCompile(`(?i)(^|\.)(log|logger)$`)

// eventsOf finds every call of a logger in the code, by the name of its record.
func eventsOf(t *testing.T) map[string]*logged {
	t.Helper()
	found := map[string]*logged{}
	eachFile(t, func(pkg, _ string, file *ast.File, set *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			level, args := logCall(pkg, call)
			if level == "" {
				return true
			}
			e := eventOf(args)
			switch known := found[e.name]; {
			case e.name == "":
				t.Errorf("%s: name the record by the attribute \"event\", because its message is made at run time", set.Position(call.Pos()))
			case known == nil:
				found[e.name] = e
				fallthrough
			default:
				known = found[e.name]
				if known.message != e.message {
					t.Errorf("%s: the name %s is that of %q already: change the message %q, or name it by the attribute \"event\"", set.Position(call.Pos()), e.name, known.message, e.message)
				}
				known.levels, known.packages = append(known.levels, level), append(known.packages, pkg)
				known.attributes = append(known.attributes, e.attributes...)
			}
			return true
		})
	})
	return found
}

// logCall returns the level and the arguments of a call that logs; no level: it does not log.
func logCall(pkg string, call *ast.CallExpr) (level string, args []ast.Expr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return "", nil
	}
	receiver := textOf(method.X)
	switch name := method.Sel.Name; name {
	case "Debug", "Info", "Warn", "Error":
		if logger.MatchString(receiver) && (pkg != "turn/turncat" || !call.Ellipsis.IsValid()) { // its limiter passes on what warn receives
			return strings.ToUpper(name), call.Args
		}
	case "warn":
		if pkg == "turn/turncat" && !call.Ellipsis.IsValid() && len(call.Args)%2 == 1 && (receiver == "t" || receiver == "w.t") {
			return "WARN", call.Args
		}
	}
	return "", nil
}

// textOf writes an expression of names and selectors.
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return textOf(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		if with, ok := e.Fun.(*ast.SelectorExpr); ok && with.Sel.Name == "With" {
			return textOf(with.X)
		}
	}
	return "?"
}

func constantText(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}

func eventOf(args []ast.Expr) *logged {
	e := &logged{}
	message, constant := constantText(args[0])
	if constant {
		e.name, e.message = events.Name(message), message
	}
	for i := 1; i+1 < len(args); i += 2 {
		key, ok := constantText(args[i])
		if !ok {
			break
		}
		if value, named := constantText(args[i+1]); key == "event" && named {
			e.name, e.message = value, "The message says what."
			continue
		}
		e.attributes = append(e.attributes, key)
	}
	return e
}

func eventsTable(t *testing.T) string {
	t.Helper()
	found := eventsOf(t)
	if len(found) < 150 {
		t.Errorf("only %d names: the code is read wrongly", len(found))
	}
	var b strings.Builder
	b.WriteString("| event | level | message | attributes | logged by |\n|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(found)) {
		e := found[name]
		attributes := ""
		if all := unique(e.attributes); len(all) > 0 {
			attributes = "`" + strings.Join(all, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, strings.Join(unique(e.levels), ", "), cell(sentence(e.message)), attributes, strings.Join(unique(e.packages), ", "))
	}
	return b.String()
}

func unique(texts []string) []string {
	texts = slices.Sorted(slices.Values(texts))
	return slices.Compact(texts)
}

// Every name that is logged is in the page, so that none changes unnoticed.
func TestThePageOfEventsIsCurrent(t *testing.T) {
	checkGenerated(t, "events.md", "events", eventsTable(t))
}
