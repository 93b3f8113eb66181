package tree

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/weir-lb/weir/internal/control/config"
)

// Of returns a document as a tree. It must be one that config.Decode reads without an error.
func Of(s Shape, name string, text []byte) (any, error) {
	root, err := config.Parse(name, text)
	if err != nil {
		return nil, err
	}
	return s.of(root)
}

func (s Shape) of(node ast.Node) (any, error) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return s.ofPairs(n.Values)
	case *ast.MappingValueNode:
		return s.ofPairs([]*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		list := make([]any, len(n.Values))
		for i, item := range n.Values {
			value, err := s.Item().of(item)
			if err != nil {
				return nil, err
			}
			list[i] = value
		}
		return list, nil
	}
	text, quoted, ok := config.Scalar(node)
	switch {
	case !ok:
		return nil, fmt.Errorf("line %d: %s is not read", config.PositionOf(node).Line, node.Type())
	case quoted || s.text():
		return text, nil
	}
	return s.bare(text), nil
}

func (s Shape) ofPairs(pairs []*ast.MappingValueNode) (any, error) {
	keys := make(map[string]any, len(pairs))
	for _, pair := range pairs {
		key, ok := config.KeyText(pair)
		if !ok {
			return nil, fmt.Errorf("line %d: the key is no plain word", config.PositionOf(pair).Line)
		}
		of, _ := s.Key(key)
		value, err := of.of(pair.Value)
		if err != nil {
			return nil, err
		}
		keys[key] = value
	}
	return keys, nil
}

// bare returns the value of a scalar without quotes.
func (s Shape) bare(text string) any {
	if text == "true" || text == "false" {
		return text == "true"
	}
	if strings.HasPrefix(text, "0x") {
		if n, err := strconv.ParseUint(text[2:], 16, 64); err == nil {
			return json.Number(strconv.FormatUint(n, 10))
		}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return json.Number(strconv.FormatInt(n, 10))
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil && json.Valid([]byte(text)) {
		return json.Number(text)
	}
	return text
}
