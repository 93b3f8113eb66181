package tree

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// Item is implemented by the elements of a list that have a name without a key called name.
type Item interface {
	// ItemName returns the name of the item; empty: it is not complete.
	ItemName() string
	// ItemOf returns the keys of the item that has a name.
	ItemOf(name string) (map[string]string, error)
}

// Secret is implemented by values that are not shown.
type Secret interface{ Secret() bool }

// Shape says what a value of a document may be, by the Go type that it is decoded into. The zero value knows nothing.
type Shape struct{ t reflect.Type }

// ShapeOf returns the shape of a document that is decoded into a T.
func ShapeOf[T any]() Shape { return shapeOf(reflect.TypeFor[T]()) }

func shapeOf(t reflect.Type) Shape {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return Shape{t}
}

func (s Shape) implements(of reflect.Type) bool {
	return s.t != nil && (s.t.Implements(of) || reflect.PointerTo(s.t).Implements(of))
}

// text reports whether the value is written as text, and bare whether as a number or truth value.
func (s Shape) text() bool {
	if s.t == nil {
		return false
	}
	switch s.t {
	case reflect.TypeFor[time.Duration](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.AddrPort]():
		return true
	}
	return s.implements(reflect.TypeFor[encoding.TextUnmarshaler]()) || s.t.Kind() == reflect.String
}

func (s Shape) truth() bool { return !s.text() && s.t != nil && s.t.Kind() == reflect.Bool }

func (s Shape) number() bool {
	return !s.text() && s.t != nil && s.t.Kind() >= reflect.Int && s.t.Kind() <= reflect.Float64
}

// List reports whether the value is a list.
func (s Shape) List() bool { return !s.text() && s.t != nil && s.t.Kind() == reflect.Slice }

// Mapping reports whether the value has keys.
func (s Shape) Mapping() bool {
	return !s.text() && s.t != nil && (s.t.Kind() == reflect.Struct || s.t.Kind() == reflect.Map)
}

// Secret reports whether the value is not shown.
func (s Shape) Secret() bool { return s.implements(reflect.TypeFor[Secret]()) }

// Key returns the shape of the value of a key; false: there is no such key.
func (s Shape) Key(key string) (Shape, bool) {
	switch {
	case !s.Mapping():
		return Shape{}, false
	case s.t.Kind() == reflect.Map:
		return shapeOf(s.t.Elem()), true
	}
	for i := range s.t.NumField() {
		if name, _, _ := strings.Cut(s.t.Field(i).Tag.Get("yaml"), ","); name == key && name != "-" && name != "" {
			return shapeOf(s.t.Field(i).Type), true
		}
	}
	return Shape{}, false
}

// Keys returns the keys of a mapping in the order of the type; none for a map of names.
func (s Shape) Keys() (keys []string) {
	if !s.Mapping() || s.t.Kind() == reflect.Map {
		return nil
	}
	for i := range s.t.NumField() {
		if name, _, _ := strings.Cut(s.t.Field(i).Tag.Get("yaml"), ","); name != "-" && name != "" {
			keys = append(keys, name)
		}
	}
	return keys
}

// Item returns the shape of the items of a list.
func (s Shape) Item() Shape {
	if !s.List() {
		return Shape{}
	}
	return shapeOf(s.t.Elem())
}

func (s Shape) item() (Item, bool) {
	if s.t == nil {
		return nil, false
	}
	item, ok := reflect.New(s.t).Interface().(Item)
	return item, ok
}

// Named reports whether the value is a list whose items have names.
func (s Shape) Named() bool {
	of := s.Item()
	if _, own := of.item(); own {
		return true
	}
	_, named := of.Key("name")
	return named && of.Mapping()
}

// NameOf returns the name of an item of a named list; false: it has none.
func (s Shape) NameOf(item any) (string, bool) {
	keys, ok := item.(map[string]any)
	if !ok {
		return "", false
	}
	of := s.Item()
	own, ok := of.item()
	if !ok {
		name, ok := keys["name"].(string)
		return name, ok && name != ""
	}
	value := reflect.ValueOf(own).Elem()
	for i := range value.NumField() {
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("yaml"), ",")
		text, ok := keys[name].(string)
		if reads, is := value.Field(i).Addr().Interface().(encoding.TextUnmarshaler); !ok || !is || reads.UnmarshalText([]byte(text)) != nil {
			return "", false
		}
	}
	name := own.ItemName()
	return name, name != ""
}

// named returns the keys by which an item with this name begins, and its name as NameOf writes it.
func (s Shape) named(name string) (map[string]any, string, error) {
	own, ok := s.Item().item()
	if !ok {
		return map[string]any{"name": name}, name, nil
	}
	texts, err := own.ItemOf(name)
	if err != nil {
		return nil, "", err
	}
	keys := map[string]any{}
	for key, text := range texts {
		keys[key] = text
	}
	if canonical, ok := s.NameOf(keys); ok {
		name = canonical
	}
	return keys, name, nil
}

// normal returns a value with the types that a tree has: a number where the shape is text becomes text, as the file's 5784 for a port.
func (s Shape) normal(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			of, _ := s.Key(key)
			value[key] = of.normal(v)
		}
	case []any:
		for i, v := range value {
			value[i] = s.Item().normal(v)
		}
	case json.Number:
		if s.text() {
			return value.String()
		}
	}
	return value
}

// Read reads JSON to a value of the shape.
func Read(s Shape, text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one value")
	}
	return s.normal(value), nil
}

// Word returns the value that a word of a command line means for a shape: a number, a truth value, a list of words with commas between
// them, items of a named list by their names, JSON, or text. null removes a key.
func Word(s Shape, word string) (any, error) {
	switch {
	case word == "null":
		return nil, nil
	case strings.HasPrefix(word, "{"), strings.HasPrefix(word, "["):
		return Read(s, []byte(word))
	case s.truth() && (word == "true" || word == "false"):
		return word == "true", nil
	case s.number() && json.Valid([]byte(word)) && strings.IndexAny(word[:1], "-0123456789") == 0:
		return json.Number(word), nil
	case !s.List():
		return word, nil
	}
	list := []any{}
	for _, one := range strings.Split(word, ",") {
		if s.Named() {
			item, _, err := s.named(one)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
			continue
		}
		value, err := Word(s.Item(), one)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, nil
}
