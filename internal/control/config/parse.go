package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxBytes bounds a document in YAML; a longer one is not a configuration.
const MaxBytes = 1 << 20

// maxDepth bounds nesting, also before parsing, because the parser recurses.
const maxDepth = 32

// maxKeys and maxValue bound one mapping and one scalar: the parser looks at all keys for each new one, and a message
// quotes what it refuses.
const (
	maxKeys  = 1000
	maxValue = 4096
)

// unprintable says which characters of ASCII cannot stand in YAML (YAML 1.2.2 section 5.1).
func unprintable(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f
}

// parse reads one document to its root node. The parser is third-party code on bytes that may come over a network
// (a ConfigMap): should it panic, that is an error of the document and not the end of a load balancer.
func parse(name string, text []byte) (root ast.Node, err error) {
	at := func(p Position, format string, args ...any) error {
		return &Error{File: name, Position: p, Message: fmt.Sprintf(format, args...)}
	}
	if len(text) <= MaxJSONBytes {
		if root, ok := parseJSON(text); ok {
			return root, nil
		}
	}
	if len(text) > MaxBytes {
		return nil, at(Position{1, 1}, "larger than %d bytes; split the document", MaxBytes)
	}
	if i := bytes.IndexFunc(text, unprintable); i >= 0 {
		before := text[:i]
		p := Position{bytes.Count(before, []byte{'\n'}) + 1, utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1}
		return nil, at(p, `the byte 0x%02x is no character of YAML; remove it, or write "\x%02x" in double quotes`, text[i], text[i])
	}
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, at(Position{1, 1}, "the YAML parser gave up (%v); simplify the document", r)
		}
	}()
	if p, ok := bracketsTooDeep(text); ok {
		return nil, at(p, "more than %d levels deep; flatten the document", maxDepth)
	}
	tokens := lexer.Tokenize(string(text))
	if p, ok := tooDeep(tokens); ok {
		return nil, at(p, "more than %d levels deep; flatten the document", maxDepth)
	}
	if p, ok := tooWide(tokens); ok {
		return nil, at(p, "more than %d keys in one mapping; write a list, or split the document", maxKeys)
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // duplicates: reported by pairs, with their remedy
	if err != nil {
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) && syntax.Token != nil {
			return nil, at(positionOfToken(syntax.Token), "not YAML: %s; check indentation, colons and quotes", firstLine(syntax.Message))
		}
		return nil, at(Position{1, 1}, "not YAML: %s; check indentation, colons and quotes", firstLine(err.Error()))
	}
	var documents []*ast.DocumentNode
	for _, document := range file.Docs {
		if document.Body != nil {
			documents = append(documents, document)
		}
	}
	switch {
	case len(documents) == 0:
		return nil, at(Position{1, 1}, "the document is empty; see the examples folder for one to start from")
	case len(documents) > 1:
		return nil, at(positionOf(documents[1].Body), "a second document starts here; one file holds one document")
	}
	if _, ok := documents[0].Body.(*ast.CommentGroupNode); ok {
		return nil, at(Position{1, 1}, "the document holds comments only; see the examples folder for one to start from")
	}
	return documents[0].Body, nil
}

// Parse reads one document to its root node, with the bounds of Decode, for programs that change its text.
func Parse(name string, text []byte) (ast.Node, error) { return parse(name, text) }

// KeyText returns the key of an entry of a mapping as a plain word.
func KeyText(pair *ast.MappingValueNode) (string, bool) { return keyText(pair) }

// Scalar returns a scalar as it was written, and whether it was quoted.
func Scalar(node ast.Node) (text string, quoted, ok bool) { return scalarText(node) }

// PositionOf returns where a node starts.
func PositionOf(node ast.Node) Position { return positionOf(node) }

// bracketsTooDeep checks the bytes cheaply before the lexer allocates about 250 bytes for each of them. It looks for far
// more opening brackets than closing ones, or many entries (- - -) on one line. Brackets in text and comments count too, so
// the bound is ten times maxDepth.
func bracketsTooDeep(text []byte) (Position, bool) {
	brackets, entries, at := 0, 0, Position{1, 0}
	for i, c := range text {
		at.Column++
		switch c {
		case '[', '{':
			brackets++
		case ']', '}':
			brackets = max(0, brackets-1)
		case '-', '?':
			if i+1 < len(text) && text[i+1] == ' ' {
				entries++
			}
		case '\n':
			entries, at = 0, Position{at.Line + 1, 0}
		}
		if max(brackets, entries) > 10*maxDepth {
			return at, true
		}
	}
	return Position{}, false
}

// tooDeep finds nesting that costs few bytes per level: brackets, and several entries on one line. Nesting by
// indentation needs a longer line per level, so the size bound covers it.
func tooDeep(tokens token.Tokens) (Position, bool) {
	brackets, entries, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			entries, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			entries++
		}
		if brackets > maxDepth || entries > maxDepth {
			return positionOfToken(t), true
		}
	}
	return Position{}, false
}

// tooWide finds a mapping with too many keys, in blocks by the column of their keys, in brackets by nesting.
func tooWide(tokens token.Tokens) (Position, bool) {
	blocks := map[int]int{}   // column of the keys: how many
	brackets := []int{0}      // by depth: how many
	var previous *token.Token // of a colon: its key
	for _, t := range tokens {
		column := t.Position.Column
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets = append(brackets, 0)
		case token.SequenceEndType, token.MappingEndType:
			brackets = brackets[:max(1, len(brackets)-1)]
		case token.SequenceEntryType:
			forget(blocks, column)
		case token.MappingValueType, token.MappingKeyType:
			count := &brackets[len(brackets)-1]
			if len(brackets) == 1 {
				if previous != nil && t.Type == token.MappingValueType {
					column = previous.Position.Column
				}
				forget(blocks, column)
				blocks[column]++
				*count = blocks[column]
			} else {
				*count++
			}
			if *count > maxKeys {
				return positionOfToken(t), true
			}
		}
		previous = t
	}
	return Position{}, false
}

// forget removes the mappings that are indented deeper than a column.
func forget(blocks map[int]int, column int) {
	for c := range blocks {
		if c > column {
			delete(blocks, c)
		}
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

func positionOfToken(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{1, 1}
	}
	return Position{max(t.Position.Line, 1), max(t.Position.Column, 1)}
}

// positionOf returns where a node starts; for a mapping, where its first key starts.
func positionOf(node ast.Node) Position {
	switch n := node.(type) {
	case nil:
		return Position{1, 1}
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return positionOf(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return positionOf(n.Key)
	}
	return positionOfToken(node.GetToken())
}

// keyText returns a mapping key as a plain word.
func keyText(pair *ast.MappingValueNode) (string, bool) {
	switch pair.Key.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		text, _, ok := scalarText(pair.Key)
		return text, ok
	default:
		return "", false
	}
}

// scalarText returns a scalar as it was written, and whether it was quoted.
func scalarText(node ast.Node) (text string, quoted, ok bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		t := n.Token.Type
		return n.Value, t == token.SingleQuoteType || t == token.DoubleQuoteType, true
	case *ast.LiteralNode:
		return n.Value.Value, true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, false, true
	default:
		return "", false, false
	}
}
