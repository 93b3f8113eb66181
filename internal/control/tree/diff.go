package tree

import (
	"encoding/json"
	"maps"
	"slices"
)

// Difference is one value that two trees do not share.
type Difference struct {
	Path     string // of Join
	Old, New any    // nil: it is not there
}

// Diff returns the differences by path: of an object that only one tree has the object as a whole, else of its keys. Secrets are
// replaced by their notice. Another order of items is a difference of the list.
func Diff(s Shape, before, after any) (all []Difference) {
	diff(s, nil, before, after, &all)
	return all
}

// hidden stands for a secret.
const hidden = "(secret)"

func diff(s Shape, path []string, before, after any, all *[]Difference) {
	if Equal(before, after) {
		return
	}
	switch a := before.(type) {
	case map[string]any:
		if b, ok := after.(map[string]any); ok {
			for _, key := range s.sortedKeys(a, b) {
				of, _ := s.Key(key)
				diff(of, append(slices.Clip(path), key), a[key], b[key], all)
			}
			return
		}
	case []any:
		if b, ok := after.([]any); ok && s.Named() {
			s.diffItems(path, a, b, all)
			return
		}
	case nil:
		if b, ok := after.([]any); ok && s.Named() && len(b) > 0 {
			s.diffItems(path, nil, b, all)
			return
		}
	}
	*all = append(*all, Difference{Join(path...), s.shown(before), s.shown(after)})
}

func (s Shape) diffItems(path []string, before, after []any, all *[]Difference) {
	old, now := s.byName(before), s.byName(after)
	var kept, keptNow []string
	for _, name := range old.order {
		if item, ok := now.items[name]; ok {
			kept = append(kept, name)
			diff(s.Item(), append(slices.Clip(path), name), old.items[name], item, all)
			continue
		}
		*all = append(*all, Difference{Join(append(slices.Clip(path), name)...), s.Item().shown(old.items[name]), nil})
	}
	for _, name := range now.order {
		if _, ok := old.items[name]; ok {
			keptNow = append(keptNow, name)
			continue
		}
		*all = append(*all, Difference{Join(append(slices.Clip(path), name)...), nil, s.Item().shown(now.items[name])})
	}
	if !slices.Equal(kept, keptNow) {
		*all = append(*all, Difference{Join(path...), kept, keptNow})
	}
}

// namedItems are the items of a list by name.
type namedItems struct {
	order []string
	items map[string]any
}

func (s Shape) byName(list []any) namedItems {
	n := namedItems{items: make(map[string]any, len(list))}
	for _, item := range list {
		if name, ok := s.NameOf(item); ok {
			if _, twice := n.items[name]; !twice {
				n.order = append(n.order, name)
			}
			n.items[name] = item
		}
	}
	return n
}

// sortedKeys returns the keys of both mappings: those that the type has in its order, then the others by name.
func (s Shape) sortedKeys(mappings ...map[string]any) (keys []string) {
	there := map[string]bool{}
	for _, m := range mappings {
		for key := range m {
			there[key] = true
		}
	}
	for _, key := range s.Keys() {
		if there[key] {
			keys = append(keys, key)
			delete(there, key)
		}
	}
	return append(keys, slices.Sorted(maps.Keys(there))...)
}

// shown returns a value without its secrets.
func (s Shape) shown(value any) any {
	switch v := value.(type) {
	case map[string]any:
		shown := make(map[string]any, len(v))
		for key, one := range v {
			of, _ := s.Key(key)
			shown[key] = of.shown(one)
		}
		return shown
	case []any:
		shown := make([]any, len(v))
		for i, one := range v {
			shown[i] = s.Item().shown(one)
		}
		return shown
	}
	if value != nil && s.Secret() {
		return hidden
	}
	return value
}

// Text returns a value as JSON on one line.
func Text(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error() // cannot happen: a tree has nothing that JSON has not
	}
	return string(text)
}
