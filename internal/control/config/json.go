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
	p := jsonParser{text: text, line: 1}
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
	return &token.Token{Type: kind, Value: value, Position: &token.Position{Line: p.line, Column: p.at - p.begin + 1}}
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
		if s := p.string(); s != nil {
			return s
		}
		return nil
	default:
		return p.word()
	}
}

func (p *jsonParser) mapping(depth int) ast.Node {
	n := &ast.MappingNode{BaseNode: &ast.BaseNode{}, Start: p.token(token.MappingStartType, "{"), IsFlowStyle: true}
	p.at++
	if p.next() == '}' {
		p.at++
		return n
	}
	for len(n.Values) < maxKeys {
		if p.next() != '"' {
			return nil
		}
		key := p.string()
		if key == nil || p.next() != ':' {
			return nil
		}
		colon := p.token(token.MappingValueType, ":")
		p.at++
		value := p.value(depth + 1)
		if value == nil {
			return nil
		}
		n.Values = append(n.Values, &ast.MappingValueNode{BaseNode: &ast.BaseNode{}, Start: colon, Key: key, Value: value})
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
	n := &ast.SequenceNode{BaseNode: &ast.BaseNode{}, Start: p.token(token.SequenceStartType, "["), IsFlowStyle: true}
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

func (p *jsonParser) string() *ast.StringNode {
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
	if t.Value = string(quoted[1 : len(quoted)-1]); !utf8.ValidString(t.Value) || escaped && json.Unmarshal(quoted, &t.Value) != nil {
		return nil
	}
	return &ast.StringNode{BaseNode: &ast.BaseNode{}, Token: t, Value: t.Value}
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
	switch t := p.token(kind, string(text)); {
	case t.Value == "null":
		t.Type = token.NullType
		n = &ast.NullNode{BaseNode: &ast.BaseNode{}, Token: t}
	case t.Value == "true" || t.Value == "false":
		t.Type = token.BoolType
		n = &ast.BoolNode{BaseNode: &ast.BaseNode{}, Token: t, Value: t.Value == "true"}
	case kind == token.FloatType:
		n = &ast.FloatNode{BaseNode: &ast.BaseNode{}, Token: t}
	default:
		n = &ast.IntegerNode{BaseNode: &ast.BaseNode{}, Token: t}
	}
	p.at = end
	return n
}
