package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Renaming is a document whose reader may know other keys, for instance those of another program's options.
type Renaming interface {
	// Instead returns for each such key of the outermost mapping, with _ for -, what to write.
	Instead() map[string]string
}

// suggest returns what the document has instead of the key, else the keys that begin with the word, else the other sections where the key
// is known, else the nearest known key, else all keys.
func (d *decoder) suggest(path, key string, fields map[string]field) string {
	if document, ok := reflect.Zero(d.root).Interface().(Renaming); ok && path == "" {
		if instead := document.Instead()[strings.ReplaceAll(key, "-", "_")]; instead != "" {
			return instead
		}
	}
	var longer []string
	for name := range fields {
		if strings.HasPrefix(name, key+"_") {
			longer = append(longer, name)
		}
	}
	if slices.Sort(longer); len(longer) > 0 {
		return "did you mean " + strings.Join(longer, " or ") + "?"
	}
	if elsewhere := owners(d.root, key); len(elsewhere) > 0 && len(elsewhere) <= 3 {
		return key + " is a key of " + strings.Join(elsewhere, " and ")
	}
	known := slices.Sorted(maps.Keys(fields))
	if near := Nearest(key, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "known here: " + strings.Join(known, ", ")
}

// Nearest returns the first of the words that need the fewest letters changed, added or dropped to become the wanted one,
// at most two; "" if there is none.
func Nearest(wanted string, words []string) (near string) {
	distance := 3
	for _, word := range words {
		if n := editDistance(wanted, word); n < distance {
			near, distance = word, n
		}
	}
	return near
}

// owners returns the paths below a type where a key is known, such as services[].backends[].
func owners(root reflect.Type, key string) (paths []string) {
	var walk func(t reflect.Type, path string, depth int)
	walk = func(t reflect.Type, path string, depth int) {
		switch t.Kind() {
		case reflect.Pointer:
			walk(t.Elem(), path, depth)
		case reflect.Slice:
			walk(t.Elem(), path+"[]", depth)
		case reflect.Struct:
			if depth > 8 || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
				return
			}
			fields := fieldsOf(t)
			if _, ok := fields[key]; ok {
				paths = append(paths, cmp.Or(path, "the top level"))
			}
			for name, f := range fields {
				walk(t.Field(f.index).Type, join(path, name), depth+1)
			}
		}
	}
	walk(root, "", 0)
	slices.Sort(paths)
	return slices.Compact(paths)
}

// editDistance counts the letters to change, add or drop (Levenshtein). Long words are taken as different.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// isSection returns 1 for a list of structures.
func isSection(t reflect.Type) int {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && !reflect.PointerTo(t.Elem()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return 1
	}
	return 0
}

// describe returns in words how a type is written.
func describe(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return describe(t.Elem())
	case reflect.Slice:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return "a value"
		}
		return "a list ([a, b] or lines with -)"
	case reflect.Map:
		return "keys with values, NAME: " + describe(t.Elem())
	case reflect.Struct:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return "a value"
		}
		// Lists of sections come first, because they are the main content of a document.
		fields := fieldsOf(t)
		keys := slices.SortedFunc(maps.Keys(fields), func(a, b string) int {
			return cmp.Or(cmp.Compare(isSection(t.Field(fields[b].index).Type), isSection(t.Field(fields[a].index).Type)), cmp.Compare(a, b))
		})
		return "keys such as " + strings.Join(keys[:min(len(keys), 4)], ", ")
	case reflect.Int64:
		if t == reflect.TypeFor[time.Duration]() {
			return "a time such as 30s"
		}
		return "a whole number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return "a value"
		}
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return "a value"
		}
		return fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<t.Bits()-1)
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	default:
		return "a value"
	}
}
