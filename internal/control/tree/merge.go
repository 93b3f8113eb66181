package tree

import (
	"maps"
	"slices"
)

// Merge returns what is in force after the file has changed from base to file while running, with its run-time changes, was in force. An
// object whose own text in the file has changed becomes what the file says; every other one stays as it is in force. The own text of an
// object is its keys without the named objects and mappings in it. dropped names the objects whose run-time change has ended.
func Merge(s Shape, base, running, file any) (merged any, dropped []string) {
	merged = s.merge(nil, base, running, file, &dropped)
	return merged, dropped
}

func (s Shape) merge(path []string, base, running, file any, dropped *[]string) any {
	switch {
	case Equal(base, file):
		return running
	case Equal(base, running):
		return file
	}
	b, isB := base.(map[string]any)
	r, isR := running.(map[string]any)
	f, isF := file.(map[string]any)
	if isB && isR && isF {
		return s.mergeKeys(path, b, r, f, dropped)
	}
	list, isList := base.([]any)
	now, isNow := running.([]any)
	next, isNext := file.([]any)
	if s.Named() && (isList || base == nil) && (isNow || running == nil) && (isNext || file == nil) {
		return s.mergeItems(path, list, now, next, dropped)
	}
	if !Equal(running, file) {
		*dropped = append(*dropped, Join(path...))
	}
	return file
}

// own returns the keys of an object that are neither named objects nor mappings.
func (s Shape) own(object map[string]any) map[string]any {
	own := map[string]any{}
	for key, value := range object {
		if of, _ := s.Key(key); !of.Named() && !of.Mapping() {
			own[key] = value
		}
	}
	return own
}

func (s Shape) mergeKeys(path []string, base, running, file map[string]any, dropped *[]string) any {
	own := s.own(running)
	if changed := s.own(file); !Equal(s.own(base), changed) {
		if !Equal(s.own(base), own) && !Equal(own, changed) {
			*dropped = append(*dropped, Join(path...))
		}
		own = changed
	}
	merged := maps.Clone(own)
	for _, key := range s.sortedKeys(base, running, file) {
		of, _ := s.Key(key)
		if !of.Named() && !of.Mapping() {
			continue
		}
		if value := of.merge(append(slices.Clip(path), key), base[key], running[key], file[key], dropped); value != nil {
			merged[key] = value
		}
	}
	return merged
}

// mergeItems merges named lists: the order is that of the file; what was added at run time follows.
func (s Shape) mergeItems(path []string, base, running, file []any, dropped *[]string) any {
	before, now, next := s.byName(base), s.byName(running), s.byName(file)
	merged := []any{}
	for _, name := range next.order {
		at := append(slices.Clip(path), name)
		old, wasThere := before.items[name]
		present, isThere := now.items[name]
		switch item := next.items[name]; {
		case wasThere && isThere:
			merged = append(merged, s.Item().merge(at, old, present, item, dropped))
		case wasThere && Equal(old, item): // removed at run time
		default:
			if wasThere || isThere && !Equal(present, item) {
				*dropped = append(*dropped, Join(at...))
			}
			merged = append(merged, item)
		}
	}
	for _, name := range now.order {
		old, wasThere := before.items[name]
		if _, inFile := next.items[name]; inFile {
			continue
		}
		if !wasThere {
			merged = append(merged, now.items[name])
		} else if !Equal(old, now.items[name]) {
			*dropped = append(*dropped, Join(append(slices.Clip(path), name)...))
		}
	}
	return merged
}
