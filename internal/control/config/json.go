package config

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// MaxJSONBytes bounds a document in JSON, as programs write it: reading one costs a small part of what YAML costs.
const MaxJSONBytes = 8 << 20

// parseJSON reads a document in JSON to the nodes that the parser of YAML makes of it. Of anything else, also of a mapping with too many
// keys, it returns false: then it is read as YAML.
func parseJSON(text []byte) (ast.Node, bool) {
	p := jsonParser{text: text, line: 1, names: map[string]string{}}
	if p.space(); p.at == len(text) || text[p.at] != '{' {
		return nil, false
	}
	node := p.value(0)
	if p.space(); node == nil || p.at != len(text) {
		return nil, false
	}
	return node, true
}

type jsonParser struct {
	text  []byte
	at    int
	line  int // of at, from 1
	begin int // where the line begins

	names   map[string]string // of keys, which are few and repeated
	base    ast.BaseNode      // of all nodes: nothing is written to it
	tokens  block[placed]
	strings block[ast.StringNode]
	entries block[ast.MappingValueNode]
}

// placed is a token with its position.
type placed struct {
	token    token.Token
	position token.Position
}

// block is values that are not used yet. They are allocated many at a time: a large document has hundreds of thousands.
type block[T any] []T

const blockSize = 128

func (b *block[T]) next() *T {
	if len(*b) == 0 {
		*b = make([]T, blockSize)
	}
	value := &(*b)[0]
	*b = (*b)[1:]
	return value
}

func (p *jsonParser) space() {
	for ; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case ' ', '\t', '\r':
		case '\n':
			p.line, p.begin = p.line+1, p.at+1
		default:
			return
		}
	}
}

// next skips space and returns the next byte, 0 at the end.
func (p *jsonParser) next() byte {
	if p.space(); p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

// token is one that begins at the present position.
func (p *jsonParser) token(kind token.Type, value string) *token.Token {
	t := p.tokens.next()
	t.position.Line, t.position.Column = p.line, p.at-p.begin+1
	t.token.Type, t.token.Value, t.token.Position = kind, value, &t.position
	return &t.token
}

// value reads one value; nil: it is not JSON, or nested too deep.
func (p *jsonParser) value(depth int) ast.Node {
	if depth > maxDepth {
		return nil
	}
	switch c := p.next(); c {
	case '{':
		return p.mapping(depth)
	case '[':
		return p.sequence(depth)
	case '"':
		if s := p.string(false); s != nil {
			return s
		}
		return nil
	default:
		return p.word()
	}
}

func (p *jsonParser) mapping(depth int) ast.Node {
	n := &ast.MappingNode{BaseNode: &p.base, Start: p.token(token.MappingStartType, "{"), IsFlowStyle: true}
	p.at++
	if p.next() == '}' {
		p.at++
		return n
	}
	for len(n.Values) < maxKeys {
		if p.next() != '"' {
			return nil
		}
		key := p.string(true)
		if key == nil || p.next() != ':' {
			return nil
		}
		colon := p.token(token.MappingValueType, ":")
		p.at++
		value := p.value(depth + 1)
		if value == nil {
			return nil
		}
		entry := p.entries.next()
		entry.BaseNode, entry.Start, entry.Key, entry.Value = &p.base, colon, key, value
		n.Values = append(n.Values, entry)
		switch p.next() {
		case ',':
			p.at++
		case '}':
			p.at++
			return n
		default:
			return nil
		}
	}
	return nil
}

func (p *jsonParser) sequence(depth int) ast.Node {
	n := &ast.SequenceNode{BaseNode: &p.base, Start: p.token(token.SequenceStartType, "["), IsFlowStyle: true}
	p.at++
	if p.next() == ']' {
		p.at++
		return n
	}
	for {
		value := p.value(depth + 1)
		if value == nil {
			return nil
		}
		n.Values = append(n.Values, value)
		switch p.next() {
		case ',':
			p.at++
		case ']':
			p.at++
			return n
		default:
			return nil
		}
	}
}

// string reads a string, which may be a key; nil: it is not JSON.
func (p *jsonParser) string(key bool) *ast.StringNode {
	t := p.token(token.DoubleQuoteType, "")
	from, escaped := p.at, false
	for p.at++; ; p.at++ {
		if p.at >= len(p.text) || p.text[p.at] < ' ' {
			return nil
		}
		if p.text[p.at] == '"' {
			break
		}
		if p.text[p.at] == '\\' {
			escaped = true
			p.at++
		}
	}
	p.at++
	quoted := p.text[from:p.at]
	if t.Value = p.content(quoted[1:len(quoted)-1], key); !utf8.ValidString(t.Value) || escaped && json.Unmarshal(quoted, &t.Value) != nil {
		return nil
	}
	n := p.strings.next()
	n.BaseNode, n.Token, n.Value = &p.base, t, t.Value
	return n
}

// maxNames bounds the texts that are kept to be used again.
const maxNames = 256

// content is a part of the text as a string, which is used again if the same part is likely to come again.
func (p *jsonParser) content(part []byte, again bool) string {
	if !again {
		return string(part)
	}
	name, ok := p.names[string(part)]
	if !ok {
		if name = string(part); len(p.names) < maxNames {
			p.names[name] = name
		}
	}
	return name
}

// word reads a number, true, false or null.
func (p *jsonParser) word() ast.Node {
	from, kind := p.at, token.IntegerType
	end := from
	for ; end < len(p.text); end++ {
		c := p.text[end]
		if c == '.' || c == 'e' || c == 'E' {
			kind = token.FloatType
		}
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '.' || c == 'E' || c == '-' || c == '+') {
			break
		}
	}
	text := p.text[from:end]
	if !json.Valid(text) {
		return nil
	}
	var n ast.Node
	switch t := p.token(kind, p.content(text, true)); {
	case t.Value == "null":
		t.Type = token.NullType
		n = &ast.NullNode{BaseNode: &p.base, Token: t}
	case t.Value == "true" || t.Value == "false":
		t.Type = token.BoolType
		n = &ast.BoolNode{BaseNode: &p.base, Token: t, Value: t.Value == "true"}
	case kind == token.FloatType:
		n = &ast.FloatNode{BaseNode: &p.base, Token: t}
	default:
		n = &ast.IntegerNode{BaseNode: &p.base, Token: t}
	}
	p.at = end
	return n
}
