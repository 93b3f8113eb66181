package tree

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/weir-lb/weir/internal/control/config"
)

// editMapping changes, adds and removes keys. single: all of the mapping has to be written again.
func (w *rewriter) editMapping(s Shape, at slot, pairs []*ast.MappingValueNode, want map[string]any) (single bool, err error) {
	there, structural := map[string]bool{}, false
	for _, pair := range pairs {
		key, _ := config.KeyText(pair)
		_, wanted := want[key]
		there[key], structural = true, structural || !wanted
	}
	for key := range want {
		structural = structural || !there[key]
	}
	block := isBlock(at.node)
	if structural && !block {
		return true, nil
	}
	last := -1 // of the pairs that stay
	for i, pair := range pairs {
		key, _ := config.KeyText(pair)
		value, wanted := want[key]
		if !wanted {
			continue
		}
		last = i
		of, _ := s.Key(key)
		from := w.offset(pair.Start)
		if err := w.edit(of, slot{node: pair.Value, from: from + 1}, value); err != nil {
			return false, err
		}
	}
	if last < 0 {
		return true, nil
	}
	for i, pair := range pairs {
		if key, _ := config.KeyText(pair); want[key] == nil {
			if err := w.removePair(pairs, i); err != nil {
				return false, err
			}
		}
	}
	return false, w.addKeys(s, pairs, last, there, want)
}

// addKeys writes the keys that are not there below the last pair that stays.
func (w *rewriter) addKeys(s Shape, pairs []*ast.MappingValueNode, last int, there map[string]bool, want map[string]any) error {
	var b strings.Builder
	column := pairs[0].Key.GetToken().Position.Column
	indent := strings.Repeat(" ", column-1)
	for _, key := range s.sortedKeys(want) {
		if !there[key] {
			of, _ := s.Key(key)
			b.WriteString(indent)
			of.pair(&b, key, want[key], indent)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	_, to, err := w.extent(pairs[last])
	if err != nil {
		return err
	}
	end := w.lineEnd(to) + 1
	w.replace(end, end, b.String())
	return nil
}

// removePair takes out a key with its value. The line of the first key of an item begins with the dash, which stays.
func (w *rewriter) removePair(pairs []*ast.MappingValueNode, i int) error {
	from, to, err := w.extent(pairs[i])
	if err != nil {
		return err
	}
	begin := w.lineBegin(from)
	if len(bytes.TrimSpace(w.text[begin:from])) == 0 {
		w.remove(begin, w.lineEnd(to)+1)
		return nil
	}
	if i+1 == len(pairs) {
		return unusual(pairs[i])
	}
	next, _, err := w.extent(pairs[i+1])
	if err != nil {
		return err
	}
	w.remove(from, next)
	return nil
}

func (w *rewriter) remove(from, to int) {
	w.dropped += comments(w.text[from:to])
	w.replace(from, to, "")
}

// editList changes, adds and removes items of a named list. single: all of the list has to be written again.
func (w *rewriter) editList(s Shape, at slot, list *ast.SequenceNode, want []any) (single bool, err error) {
	have, err := s.of(list)
	if err != nil {
		return false, err
	}
	before, after := s.byName(have.([]any)), s.byName(want)
	if len(before.order) != len(list.Values) || len(after.order) != len(want) {
		return false, unusual(list)
	}
	structural := len(before.order) != len(after.order)
	kept := -1 // index of the last item before that is in both
	for _, name := range after.order {
		i := indexOf(before.order, name)
		if i >= 0 && i < kept {
			return false, fmt.Errorf("line %d: another order of the items %w", config.PositionOf(list).Line, errUnusual)
		}
		kept = max(kept, i)
		structural = structural || i < 0
	}
	switch {
	case kept < 0:
		return true, nil
	case !structural:
		return false, w.editItems(s, list, before, after)
	case list.IsFlowStyle:
		return true, nil
	}
	if err := w.editItems(s, list, before, after); err != nil {
		return false, err
	}
	return false, w.restructure(s, list, before, after)
}

func indexOf(names []string, name string) int {
	for i, one := range names {
		if one == name {
			return i
		}
	}
	return -1
}

func (w *rewriter) editItems(s Shape, list *ast.SequenceNode, before, after namedItems) error {
	for i, name := range before.order {
		item, ok := after.items[name]
		if !ok {
			continue
		}
		from, _, err := w.extent(list.Values[i])
		if err != nil {
			if Equal(before.items[name], item) {
				continue
			}
			return err
		}
		if err := w.edit(s.Item(), slot{node: list.Values[i], from: bytes.LastIndexByte(w.text[:from], '-') + 1}, item); err != nil {
			return err
		}
	}
	return nil
}

// restructure removes and adds items of a list in block style.
func (w *rewriter) restructure(s Shape, list *ast.SequenceNode, before, after namedItems) error {
	column := list.Start.Position.Column
	indent := strings.Repeat(" ", column-1)
	for i, name := range before.order {
		if _, stays := after.items[name]; stays {
			continue
		}
		from, to, err := w.lines(list, i, column)
		if err != nil {
			return err
		}
		if i > 0 {
			from = w.withComments(from, indent)
		}
		w.remove(from, to)
	}
	at, _, err := w.lines(list, 0, column)
	if err != nil {
		return err
	}
	for _, name := range after.order {
		if i := indexOf(before.order, name); i >= 0 {
			if _, at, err = w.lines(list, i, column); err != nil {
				return err
			}
			continue
		}
		var b strings.Builder
		b.WriteString(indent)
		if item := list.Values[0]; isBlock(item) && !s.Item().nested() {
			b.WriteString("- ")
			s.Item().block(&b, after.items[name].(map[string]any), indent+"  ")
		} else {
			s.entry(&b, after.items[name], indent)
		}
		w.replace(at, at, b.String())
	}
	return nil
}

// lines returns the extent of an item's lines.
func (w *rewriter) lines(list *ast.SequenceNode, i, column int) (from, to int, err error) {
	from, to, err = w.extent(list.Values[i])
	if err != nil {
		return 0, 0, err
	}
	begin := w.lineBegin(from)
	if prefix := w.text[begin:from]; len(prefix) < column || prefix[column-1] != '-' || len(bytes.TrimSpace(prefix)) != 1 {
		return 0, 0, unusual(list.Values[i])
	}
	return begin, w.lineEnd(to) + 1, nil
}

// withComments returns where the comments begin that are directly above a line, with its indent.
func (w *rewriter) withComments(from int, indent string) int {
	for from > 0 {
		above := w.lineBegin(from - 1)
		if !bytes.HasPrefix(w.text[above:from], []byte(indent+"#")) {
			break
		}
		from = above
	}
	return from
}
