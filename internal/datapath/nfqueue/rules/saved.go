package rules

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// saved is the rules of one family, as iptables-save printed them.
type saved struct {
	tables map[string]*savedTable
}

type savedTable struct {
	chains []string // in order, built-in ones too
	rules  []string // "-A CHAIN …", in order
}

// maxSaved bounds how much output of iptables-save is read. On a machine with more rules nothing is changed, since we would
// not know all rules.
const maxSaved = 64 << 20

// parseSaved reads the output of iptables-save without counters. An unknown line is an error, so that nothing changes on a
// machine whose rules we do not understand.
func parseSaved(text string) (*saved, error) {
	s := &saved{tables: map[string]*savedTable{}}
	var at *savedTable
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, " \r")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '*':
			at = &savedTable{}
			s.tables[line[1:]] = at
		case at == nil:
			return nil, fmt.Errorf("line %d: %q before any table", number+1, line)
		case line[0] == ':':
			name, _, _ := strings.Cut(line[1:], " ")
			at.chains = append(at.chains, name)
		case strings.HasPrefix(line, "-A "):
			at.rules = append(at.rules, line)
		case line == "COMMIT":
			at = nil
		default:
			return nil, fmt.Errorf("line %d: %q is no table, chain or rule", number+1, line)
		}
	}
	return s, nil
}

func (s *saved) table(name string) *savedTable {
	if t := s.tables[name]; t != nil {
		return t
	}
	return &savedTable{}
}

// of returns the rules of one chain.
func (t *savedTable) of(chain string) []string {
	var all []string
	for _, rule := range t.rules {
		if strings.HasPrefix(rule, "-A "+chain+" ") {
			all = append(all, rule)
		}
	}
	return all
}

// jumpsTo returns the rules of other chains that lead to a chain.
func (t *savedTable) jumpsTo(chain string) []string {
	var all []string
	for _, rule := range t.rules {
		words := split(rule)
		for i, word := range words[:len(words)-1] {
			if (word == "-j" || word == "-g") && words[i+1] == chain {
				all = append(all, rule)
				break
			}
		}
	}
	return all
}

func (t *savedTable) has(chain string) bool { return slices.Contains(t.chains, chain) }

// split takes a rule apart at spaces; quotes keep words together and are dropped, a backslash keeps the next letter.
func split(rule string) []string {
	var words []string
	var word strings.Builder
	quoted, begun := false, false
	for i := 0; i < len(rule); i++ {
		switch c := rule[i]; {
		case c == '\\' && quoted && i+1 < len(rule):
			i++
			word.WriteByte(rule[i])
		case c == '"':
			quoted, begun = !quoted, true
		case c == ' ' && !quoted:
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		default:
			word.WriteByte(c)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}

// option returns the value of an option of a rule.
func option(words []string, name string) (string, bool) {
	for i, word := range words[:max(len(words)-1, 0)] {
		if word == name {
			return words[i+1], true
		}
	}
	return "", false
}

// isOurs reports whether a rule carries our comment.
func isOurs(rule string) bool {
	text, ok := option(split(rule), "--comment")
	return ok && (text == "weir" || strings.HasPrefix(text, "weir:"))
}

// sameRule compares two rules as iptables does, quotes aside.
func sameRule(a, b string) bool { return slices.Equal(split(a), split(b)) }

func sameRules(a, b []string) bool { return slices.EqualFunc(a, b, sameRule) }

// queuesOf returns the queues to which a rule sends packets.
func queuesOf(rule string) (first, last int, ok bool) {
	words := split(rule)
	if target, _ := option(words, "-j"); target != "NFQUEUE" {
		return 0, 0, false
	}
	if text, ok := option(words, "--queue-balance"); ok {
		from, to, _ := strings.Cut(text, ":")
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		return first, last, err1 == nil && err2 == nil
	}
	if text, ok := option(words, "--queue-num"); ok {
		first, err := strconv.Atoi(text)
		return first, first, err == nil
	}
	return 0, 0, true // the default queue
}

// Listed is an iptables rule of the namespace, ours or somebody else's.
type Listed struct {
	Family      Family
	Table, Rule string // "-A CHAIN …"
}

// Words is the rule taken apart, without quotes.
func (l Listed) Words() []string { return split(l.Rule) }

// Ours reports whether the rule carries our comment.
func (l Listed) Ours() bool { return isOurs(l.Rule) }

// Delete is the command that removes the rule.
func (l Listed) Delete() string {
	return l.Family.program() + " -w -t " + l.Table + " -D " + strings.TrimPrefix(l.Rule, "-A ")
}

// List returns all iptables rules of a family in the calling thread's network namespace.
func List(ctx context.Context, family Family) ([]Listed, error) {
	s, err := save(ctx, family)
	if err != nil {
		return nil, err
	}
	var all []Listed
	for _, table := range slices.Sorted(maps.Keys(s.tables)) {
		for _, rule := range s.tables[table].rules {
			all = append(all, Listed{family, table, rule})
		}
	}
	return all, nil
}
