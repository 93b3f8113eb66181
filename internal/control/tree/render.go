package tree

import (
	"encoding/json"
	"regexp"
	"strings"
)

// plain matches text that YAML reads as this text without quotes, also between brackets.
var plain = regexp.MustCompile(`^([A-Za-z_/][A-Za-z0-9_./-]*|[0-9]+(\.[0-9]+){3}(/[0-9]+)?|[0-9]+-[0-9]+|[1-9][0-9]{0,9}|[0-9]+(ms|s|m|h))$`)

// reserved are words that are not text without quotes.
var reserved = regexp.MustCompile(`^(?i:true|false|null|yes|no|on|off|y|n|nan|inf)$`)

func scalarText(value any) string {
	text, ok := value.(string)
	if ok && plain.MatchString(text) && !reserved.MatchString(text) {
		return text
	}
	return Text(value)
}

// flow returns a value between brackets, on one line.
func (s Shape) flow(value any) string {
	var b strings.Builder
	s.writeFlow(&b, value)
	return b.String()
}

func (s Shape) writeFlow(b *strings.Builder, value any) {
	switch v := value.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, key := range s.sortedKeys(v) {
			if i > 0 {
				b.WriteString(", ")
			}
			of, _ := s.Key(key)
			b.WriteString(scalarText(key) + ": ")
			of.writeFlow(b, v[key])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			s.Item().writeFlow(b, item)
		}
		b.WriteByte(']')
	default:
		b.WriteString(scalarText(v))
	}
}

// block writes the keys of a mapping, each on a line of its own that begins with indent; the first line has no indent. Named lists have an
// item on each line, other values are between brackets.
func (s Shape) block(b *strings.Builder, keys map[string]any, indent string) {
	for i, key := range s.sortedKeys(keys) {
		if i > 0 {
			b.WriteString(indent)
		}
		of, _ := s.Key(key)
		of.pair(b, key, keys[key], indent)
	}
}

// pair writes a key and its value, and ends the line.
func (s Shape) pair(b *strings.Builder, key string, value any, indent string) {
	list, ok := value.([]any)
	b.WriteString(scalarText(key) + ":")
	if !ok || !s.Named() || len(list) == 0 {
		b.WriteString(" " + s.flow(value) + "\n")
		return
	}
	b.WriteByte('\n')
	for _, item := range list {
		b.WriteString(indent)
		s.entry(b, item, indent)
	}
}

// entry writes an item of a named list, and ends the line.
func (s Shape) entry(b *strings.Builder, item any, indent string) {
	keys, ok := item.(map[string]any)
	b.WriteString("- ")
	if !ok || !s.Item().nested() || len(keys) == 0 {
		b.WriteString(s.Item().flow(item) + "\n")
		return
	}
	s.Item().block(b, keys, indent+"  ")
}

// nested reports whether an object has named lists in it, which is then written on several lines.
func (s Shape) nested() bool {
	for _, key := range s.Keys() {
		if of, _ := s.Key(key); of.Named() {
			return true
		}
	}
	return false
}

// YAML returns a document with a tree, without comments.
func YAML(s Shape, root any) []byte {
	var b strings.Builder
	if keys, ok := root.(map[string]any); ok && len(keys) > 0 {
		s.block(&b, keys, "")
	} else {
		b.WriteString(s.flow(root) + "\n")
	}
	return []byte(b.String())
}

// JSON returns a document with a tree.
func JSON(root any) ([]byte, error) { return json.MarshalIndent(root, "", "  ") }
