package tree

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/weir-lb/weir/internal/control/config"
)

// Rewrite returns the text of a document changed so that it says what the tree does. Only what differs is written; comments and layout
// stay. A document in JSON is written again, with the order of its keys. The error says which line cannot be kept.
func Rewrite(s Shape, name string, text []byte, want any) ([]byte, error) {
	if trimmed := bytes.TrimSpace(text); bytes.HasPrefix(trimmed, []byte("{")) && json.Valid(trimmed) {
		out, err := JSON(want)
		return append(out, '\n'), err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(slices.Clone(text), '\n')
	}
	root, err := config.Parse(name, text)
	if err != nil {
		return nil, err
	}
	w := newRewriter(text)
	if err := w.edit(s, slot{node: root, root: true}, want); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := w.apply()
	if got, err := Of(s, name, out); err != nil || !Equal(got, want) {
		return nil, fmt.Errorf("%s: its layout is too unusual to be changed; edit the file, or change without writing", name)
	}
	if comments(text) > comments(out)+w.dropped {
		return nil, fmt.Errorf("%s: a comment would be lost; edit the file, or change without writing", name)
	}
	return out, nil
}

func comments(text []byte) int { return bytes.Count(text, []byte("#")) }

// rewriter collects replacements of bytes.
type rewriter struct {
	text    []byte
	begins  []int // of lines
	edits   []replacement
	dropped int // characters # in what is removed together with its object, or was inside of a value
}

type replacement struct {
	from, to int
	text     string
}

// slot is a value and where it is.
type slot struct {
	node ast.Node
	from int // of a value in block style: the end of the colon or dash before it
	root bool
}

func newRewriter(text []byte) *rewriter {
	w := &rewriter{text: text, begins: []int{0}}
	for i, c := range text {
		if c == '\n' {
			w.begins = append(w.begins, i+1)
		}
	}
	return w
}

// apply returns the text with all replacements.
func (w *rewriter) apply() []byte {
	slices.SortStableFunc(w.edits, func(a, b replacement) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var out []byte
	at := 0
	for _, edit := range w.edits {
		if edit.from < at {
			return nil // they overlap: the check of the result refuses it
		}
		out = append(append(out, w.text[at:edit.from]...), edit.text...)
		at = edit.to
	}
	return append(out, w.text[at:]...)
}

func (w *rewriter) replace(from, to int, text string) {
	w.edits = append(w.edits, replacement{from, to, text})
}

// offset returns where a token begins. Its column counts characters.
func (w *rewriter) offset(t *token.Token) int {
	if t == nil || t.Position == nil || t.Position.Line < 1 || t.Position.Line > len(w.begins) {
		return -1
	}
	at := w.begins[t.Position.Line-1]
	for range t.Position.Column - 1 {
		if at >= len(w.text) {
			return -1
		}
		at += len(firstRune(w.text[at:]))
	}
	return at
}

func firstRune(text []byte) []byte {
	for n := 1; n < len(text) && n < 4; n++ {
		if text[n]&0xc0 != 0x80 {
			return text[:n]
		}
	}
	return text[:min(len(text), 4)]
}

// lineEnd returns where the line of an offset ends, before its newline.
func (w *rewriter) lineEnd(at int) int {
	if i := bytes.IndexByte(w.text[at:], '\n'); i >= 0 {
		return at + i
	}
	return len(w.text)
}

func (w *rewriter) lineBegin(at int) int { return bytes.LastIndexByte(w.text[:at], '\n') + 1 }

var errUnusual = errors.New("cannot be rewritten; edit the file, or change without writing")

func unusual(node ast.Node) error {
	return fmt.Errorf("line %d: %w", config.PositionOf(node).Line, errUnusual)
}

// extent returns the first byte of a value and the one after its last.
func (w *rewriter) extent(node ast.Node) (from, to int, err error) {
	switch n := node.(type) {
	case *ast.MappingNode:
		if n.IsFlowStyle {
			return w.brackets(n, n.Start, n.End)
		}
		return w.span(n, n.Values[0], n.Values[len(n.Values)-1])
	case *ast.SequenceNode:
		if n.IsFlowStyle {
			return w.brackets(n, n.Start, n.End)
		}
		_, to, err = w.extent(n.Values[len(n.Values)-1])
		return w.offset(n.Start), to, err
	case *ast.MappingValueNode:
		from = w.offset(n.Key.GetToken())
		_, to, err = w.extent(n.Value)
		return from, to, err
	}
	t := node.GetToken()
	from = w.offset(t)
	raw := strings.TrimSpace(t.Origin)
	if _, literal := node.(*ast.LiteralNode); literal || from < 0 || strings.Contains(raw, "\n") || !bytes.HasPrefix(w.text[from:], []byte(raw)) {
		return 0, 0, unusual(node)
	}
	return from, from + len(raw), nil
}

func (w *rewriter) brackets(node ast.Node, start, end *token.Token) (from, to int, err error) {
	from, to = w.offset(start), w.offset(end)
	if from < 0 || to < from {
		return 0, 0, unusual(node)
	}
	return from, to + 1, nil
}

func (w *rewriter) span(node, first, last ast.Node) (from, to int, err error) {
	from, _, err = w.extent(first)
	if err != nil {
		return 0, 0, err
	}
	if _, to, err = w.extent(last); err != nil {
		return 0, 0, err
	}
	if from < 0 || to < from {
		return 0, 0, unusual(node)
	}
	return from, to, nil
}

// edit makes a value what is wanted.
func (w *rewriter) edit(s Shape, at slot, want any) error {
	have, err := s.of(at.node)
	if err != nil || Equal(have, want) {
		return err
	}
	single := false
	pairs, isMapping := pairsOf(at.node)
	keys, wantsMapping := want.(map[string]any)
	list, isList := at.node.(*ast.SequenceNode)
	items, wantsList := want.([]any)
	switch {
	case isMapping && wantsMapping && len(keys) > 0 && len(pairs) > 0:
		single, err = w.editMapping(s, at, pairs, keys)
	case isList && wantsList && s.Named() && len(items) > 0 && len(list.Values) > 0:
		single, err = w.editList(s, at, list, items)
	default:
		single = true
	}
	if err != nil || !single {
		return err
	}
	return w.whole(s, at, want)
}

// whole replaces a value by one between brackets.
func (w *rewriter) whole(s Shape, at slot, want any) error {
	from, to, err := w.extent(at.node)
	if err != nil {
		return err
	}
	text := s.flow(want)
	if at.from > 0 && isBlock(at.node) {
		if from, text = at.from, " "+text; bytes.IndexByte(w.text[at.from:to], '#') >= 0 {
			return fmt.Errorf("line %d: the comments in this value would be lost; edit the file, or change without writing", config.PositionOf(at.node).Line)
		}
	} else if bytes.IndexByte(w.text[from:to], '#') >= 0 && bytes.IndexByte(w.text[from:to], '\n') >= 0 {
		return fmt.Errorf("line %d: the comments in these brackets would be lost; edit the file, or change without writing", config.PositionOf(at.node).Line)
	}
	w.dropped += comments(w.text[from:to])
	w.replace(from, to, text)
	return nil
}

func isBlock(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.MappingNode:
		return !n.IsFlowStyle
	case *ast.SequenceNode:
		return !n.IsFlowStyle
	case *ast.MappingValueNode:
		return true
	}
	return false
}

func pairsOf(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}
