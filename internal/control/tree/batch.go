package tree

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"

	"github.com/weir-lb/weir/internal/control/config"
)

// Change is one change of a batch.
type Change struct {
	Op, Path string
	Value    any // nil: there is none
}

// Batch reads a file with a list of changes, in YAML or JSON:
//
//	changes:
//	- {op: merge, path: /services/echo/backends/a, value: {weight: 5}}
//	- {op: remove, path: /services/echo/backends/b}
//
// Errors name the file and the line.
func Batch(s Shape, name string, text []byte) ([]Change, error) {
	root, err := config.Parse(name, text)
	if err != nil {
		return nil, err
	}
	fail := func(node ast.Node, format string, args ...any) error {
		at := config.PositionOf(node)
		return fmt.Errorf("%s:%d:%d: %s", name, at.Line, at.Column, fmt.Sprintf(format, args...))
	}
	pairs, _ := pairsOf(root)
	var all []Change
	for _, pair := range pairs {
		key, _ := config.KeyText(pair)
		list, ok := pair.Value.(*ast.SequenceNode)
		if key != "changes" || !ok {
			return nil, fail(pair.Key, "%s: not a list of changes; write changes: [{op: merge, path: /services/NAME, value: {...}}]", key)
		}
		for _, node := range list.Values {
			c, err := s.changeOf(node, fail)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	return all, nil
}

func (s Shape) changeOf(node ast.Node, fail func(node ast.Node, format string, args ...any) error) (c Change, err error) {
	pairs, ok := pairsOf(node)
	if !ok {
		return c, fail(node, "not a change; write {op: merge, path: /services/NAME, value: {...}}")
	}
	var value ast.Node
	for _, pair := range pairs {
		key, _ := config.KeyText(pair)
		text, _, isText := config.Scalar(pair.Value)
		switch {
		case key == "value":
			value = pair.Value
		case key == "op" && isText:
			c.Op = text
		case key == "path" && isText:
			c.Path = text
		default:
			return c, fail(pair.Key, "%s: unknown key; known here: op, path, value", key)
		}
	}
	path, err := Split(c.Path)
	if err != nil || c.Op == "" {
		return c, fail(node, "a change needs op and path; write op: set, merge, add or remove, and path: /services/NAME: %v", err)
	}
	if value != nil {
		if c.Value, err = s.At(path).of(value); err != nil {
			return c, fail(value, "%v", err)
		}
	}
	return c, nil
}
