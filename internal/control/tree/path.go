package tree

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// Errors of changes; they are wrapped with the path.
var (
	ErrAbsent = errors.New("there is no such object")
	ErrExists = errors.New("the object exists, and is another one")
)

// maxPath bounds the elements of a path.
const maxPath = 16

// Split returns the elements of a path.
func Split(path string) ([]string, error) {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil, nil
	}
	elements := strings.Split(path, "/")
	if len(elements) > maxPath {
		return nil, fmt.Errorf("path %q: more than %d elements", path, maxPath)
	}
	for i, element := range elements {
		name, err := url.PathUnescape(element)
		if err != nil || name == "" {
			return nil, fmt.Errorf("path %q: element %q cannot be read; escape it as in a URL, such as %%2F for a slash", path, element)
		}
		elements[i] = name
	}
	return elements, nil
}

// Join is the opposite of Split.
func Join(elements ...string) string {
	var b strings.Builder
	for _, element := range elements {
		b.WriteByte('/')
		b.WriteString(escape(element))
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// escape leaves the characters of names readable that a path element of a URL may have.
func escape(element string) string {
	return strings.NewReplacer("%", "%25", "/", "%2F", "?", "%3F", "#", "%23", " ", "%20").Replace(element)
}

// Clone returns a copy that shares nothing.
func Clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for key, v := range value {
			copied[key] = Clone(v)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, v := range value {
			copied[i] = Clone(v)
		}
		return copied
	}
	return value
}

// Equal reports whether two trees are the same document. The order of items counts.
func Equal(a, b any) bool { return reflect.DeepEqual(a, b) }

// Get returns the value at a path.
func Get(s Shape, root any, path []string) (any, error) {
	value, at := root, s
	for i, name := range path {
		var ok bool
		if value, at, ok = at.child(value, name); !ok {
			return nil, fmt.Errorf("%s: %w", Join(path[:i+1]...), ErrAbsent)
		}
	}
	return value, nil
}

// child returns the value of a key, or the item of that name.
func (s Shape) child(value any, name string) (any, Shape, bool) {
	switch value := value.(type) {
	case map[string]any:
		child, ok := value[name]
		of, _ := s.Key(name)
		return child, of, ok
	case []any:
		if i := s.index(value, name); i >= 0 {
			return value[i], s.Item(), true
		}
	}
	return nil, Shape{}, false
}

// index returns where a named list has an item; -1: nowhere.
func (s Shape) index(list []any, name string) int {
	if !s.Named() {
		return -1
	}
	if _, canonical, err := s.named(name); err == nil {
		name = canonical
	}
	return slices.IndexFunc(list, func(item any) bool {
		found, ok := s.NameOf(item)
		return ok && found == name
	})
}

// At returns the shape of what a path names.
func (s Shape) At(path []string) Shape {
	for _, name := range path {
		if s.List() {
			s = s.Item()
		} else {
			s, _ = s.Key(name)
		}
	}
	return s
}

// Set makes the value at a path this one, and returns the root. The object around it must exist; a list or mapping is made. It changes
// root, as the functions below do: Clone what has to stay.
func Set(s Shape, root any, path []string, value any) (any, error) {
	value, err := s.complete(path, value)
	if err != nil {
		return nil, err
	}
	return change(s, root, path, path, func(any, bool) (any, error) { return value, nil })
}

// Patch gives the keys of an object the values of a mapping and leaves its other keys; null removes a key. Items of named lists are
// patched by name; other lists are replaced. An object that is not there is made.
func Patch(s Shape, root any, path []string, value any) (any, error) {
	value, err := s.complete(path, value)
	if err != nil {
		return nil, err
	}
	return change(s, root, path, path, func(old any, _ bool) (any, error) { return s.At(path).patched(old, value) })
}

// Add is Set for an object that is not there. If it is there and equal, nothing changes; else the error is ErrExists.
func Add(s Shape, root any, path []string, value any) (any, error) {
	value, err := s.complete(path, value)
	if err != nil {
		return nil, err
	}
	return change(s, root, path, path, func(old any, there bool) (any, error) {
		if there && !Equal(old, value) {
			return nil, fmt.Errorf("%s: %w; use set to change it", Join(path...), ErrExists)
		}
		return value, nil
	})
}

// complete returns a value with the types of a tree and, if the path names an item of a named list, with the keys of its name.
func (s Shape) complete(path []string, value any) (any, error) {
	value = s.At(path).normal(value)
	if len(path) == 0 {
		return value, nil
	}
	last := len(path) - 1
	list := s.At(path[:last])
	if !list.Named() {
		return value, nil
	}
	if value == nil {
		value = map[string]any{}
	}
	begin, _, err := list.named(path[last])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Join(path...), err)
	}
	keys, ok := value.(map[string]any)
	if !ok {
		return value, nil // the decoder says what it should be
	}
	return withName(Join(path...), keys, begin)
}

// Remove takes out what is at a path. If it is not there, nothing changes.
func Remove(s Shape, root any, path []string) (any, error) {
	if len(path) == 0 {
		return nil, errors.New("the whole configuration cannot be removed; set services to []")
	}
	last := path[len(path)-1]
	around := path[:len(path)-1]
	parent, err := Get(s, root, around)
	if errors.Is(err, ErrAbsent) {
		return root, nil
	}
	at := s.At(around)
	switch parent := parent.(type) {
	case map[string]any:
		delete(parent, last)
	case []any:
		if !at.Named() {
			return nil, fmt.Errorf("%s: the items of this list have no names; set the list", Join(path...))
		}
		if i := at.index(parent, last); i >= 0 {
			return Set(s, root, around, slices.Delete(slices.Clone(parent), i, i+1))
		}
	}
	return root, nil
}

// change replaces the value at a path by what makes returns; nil removes it.
func change(s Shape, value any, path, whole []string, makes func(old any, there bool) (any, error)) (any, error) {
	if len(path) == 0 {
		return makes(value, value != nil)
	}
	at := Join(whole[:len(whole)-len(path)+1]...)
	if s.List() {
		return s.changeItem(value, at, path, whole, makes)
	}
	keys, ok := value.(map[string]any)
	if value == nil {
		keys, ok = map[string]any{}, true
	}
	of, known := s.Key(path[0])
	if !ok || !known {
		return nil, fmt.Errorf("%s: %w; known here: %s", at, ErrAbsent, strings.Join(s.Keys(), ", "))
	}
	made, err := change(of, keys[path[0]], path[1:], whole, makes)
	if err != nil {
		return nil, err
	}
	if keys[path[0]] = made; made == nil {
		delete(keys, path[0])
	}
	return keys, nil
}

// changeItem is change for an item of a named list.
func (s Shape) changeItem(value any, at string, path, whole []string, makes func(old any, there bool) (any, error)) (any, error) {
	if !s.Named() {
		return nil, fmt.Errorf("%s: the items of this list have no names; set the list", at)
	}
	list, ok := value.([]any)
	if !ok && value != nil {
		return nil, fmt.Errorf("%s: not a list", at)
	}
	i := s.index(list, path[0])
	if i < 0 && len(path) > 1 {
		return nil, fmt.Errorf("%s: %w", at, ErrAbsent)
	}
	var old any
	if i >= 0 {
		old = list[i]
	}
	made, err := change(s.Item(), old, path[1:], whole, makes)
	switch {
	case err != nil:
		return nil, err
	case i < 0:
		return append(slices.Clone(list), made), nil
	}
	list[i] = made
	return list, nil
}

// withName adds the keys of an item's name, which may not say otherwise.
func withName(at string, keys, begin map[string]any) (any, error) {
	keys = maps.Clone(keys)
	for _, key := range slices.Sorted(maps.Keys(begin)) {
		if given, ok := keys[key]; ok && fmt.Sprint(given) != fmt.Sprint(begin[key]) {
			return nil, fmt.Errorf("%s: %s is %v in the value and %v in the path; a name is not changed: remove the object and add another", at, key, given, begin[key])
		}
		if _, ok := keys[key]; !ok {
			keys[key] = begin[key]
		}
	}
	return keys, nil
}

// patched returns old with the keys of patch.
func (s Shape) patched(old, patch any) (any, error) {
	switch patch := patch.(type) {
	case map[string]any:
		keys, ok := old.(map[string]any)
		if keys = maps.Clone(keys); !ok {
			keys = map[string]any{}
		}
		for key, value := range patch {
			of, _ := s.Key(key)
			made, err := of.patched(keys[key], value)
			if err != nil {
				return nil, err
			}
			if keys[key] = made; made == nil {
				delete(keys, key)
			}
		}
		return keys, nil
	case []any:
		if !s.Named() {
			return patch, nil
		}
		list, _ := old.([]any)
		list = slices.Clone(list)
		for _, item := range patch {
			name, ok := s.NameOf(item)
			if !ok {
				return nil, fmt.Errorf("an item of a list to merge has no name: %s", Text(item))
			}
			i := s.index(list, name)
			if i < 0 {
				list = append(list, item)
				continue
			}
			made, err := s.Item().patched(list[i], item)
			if err != nil {
				return nil, err
			}
			list[i] = made
		}
		if list == nil {
			list = []any{}
		}
		return list, nil
	}
	return patch, nil
}
