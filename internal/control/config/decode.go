package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goccy/go-yaml/ast"
)

// Decode reads one YAML document into a T, a struct whose `yaml` tags name its keys. The returned error is an *Error,
// or Errors of them when several things are wrong; the value then holds what could be read, for Document.Also. name is the
// file's name, for messages only.
//
// Understood field types: string, bool, integers, floats, time.Duration (with unit), netip.Addr, anything that
// implements encoding.TextUnmarshaler, and pointers, slices, string-keyed maps and structs of these. Other types panic.
//
// Tag options for foreign formats: `yaml:"key,null"` reads null as if the key were not there, `yaml:"key,long"` lets a
// value be as long as the document (certificates). Of our own: `yaml:"key,was=old"` reads the key's former name too, with a warning.
func Decode[T any](name string, text []byte) (T, *Document, error) {
	d := &decoder{}
	value, err := decodeWith[T](d, name, text)
	return value, d.document, err
}

// DecodeForeign is Decode for the format of another program that finds keys as encoding/json and sigs.k8s.io/yaml do: it
// ignores unknown keys, and takes a key in any case; of several that differ in case only, the last in byte order counts. Each
// such key is a warning, one line with file, line and key; at most maxWarnings of them.
func DecodeForeign[T any](name string, text []byte) (value T, document *Document, warnings []string, err error) {
	d := &decoder{foreign: true}
	value, err = decodeWith[T](d, name, text)
	if more := d.warned - len(d.warnings); more > 0 {
		d.warnings = append(d.warnings, fmt.Sprintf("%s: %d more keys are unknown or differently cased", name, more))
	}
	return value, d.document, d.warnings, err
}

func decodeWith[T any](d *decoder, name string, text []byte) (T, error) {
	var value T
	d.document, d.root = &Document{file: name, at: map[string]Position{}}, reflect.TypeFor[T]()
	root, err := parse(name, text)
	if err != nil {
		return value, err
	}
	if !d.foreign {
		plain := &decoder{plain: true, document: d.document, root: d.root}
		if plain.keep(plain.decode(root, reflect.ValueOf(&value).Elem(), "", 0)); len(plain.wrong) == 0 {
			d.document.find = positionsOf[T](name, slices.Clone(text))
			return value, nil
		}
		value = *new(T)
	}
	d.keep(d.decode(root, reflect.ValueOf(&value).Elem(), "", 0))
	return value, OneOf(d.wrong)
}

// positionsOf returns what finds the positions in a document that has been read without an error.
func positionsOf[T any](name string, text []byte) func() map[string]Position {
	return func() map[string]Position {
		var value T
		d := &decoder{document: &Document{file: name, at: map[string]Position{}}, root: reflect.TypeFor[T]()}
		if root, err := parse(name, text); err == nil {
			d.keep(d.decode(root, reflect.ValueOf(&value).Elem(), "", 0))
		}
		return d.document.at
	}
}

// Keys returns the keys of a document's outermost mapping, to distinguish formats, without the version of Weir's own. For text that is no mapping it returns
// none, and Decode reports the error.
func Keys(text []byte) []string {
	root, err := parse("", text)
	if err != nil {
		return nil
	}
	var pairs []*ast.MappingValueNode
	switch n := root.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	}
	var keys []string
	for _, pair := range pairs {
		if key, ok := keyText(pair); ok && !isVersion(pair) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Known returns the keys of a T's outermost mapping.
func Known[T any]() []string {
	return slices.Sorted(maps.Keys(fieldsOf(reflect.TypeFor[T]())))
}

type decoder struct {
	document *Document
	root     reflect.Type // of the whole document
	wrong    []error
	long     bool // the value being decoded may be longer than maxValue
	foreign  bool // as DecodeForeign
	plain    bool // no paths and no positions: it only matters whether there is an error
	warnings []string
	warned   int // includes warnings beyond maxWarnings
}

// maxErrors and maxWarnings bound what is reported of one document.
const (
	maxErrors   = 50
	maxWarnings = 20
)

// keep records an error, so that the rest of the document is checked too.
func (d *decoder) keep(err error) {
	if err != nil && len(d.wrong) < maxErrors {
		d.wrong = append(d.wrong, err)
	}
}

func (d *decoder) warn(node ast.Node, path, format string, args ...any) {
	if d.warned++; d.warned <= maxWarnings {
		d.warnings = append(d.warnings, d.fail(node, path, format, args...).Error())
	}
}

// fail returns an error at a node.
func (d *decoder) fail(node ast.Node, path, format string, args ...any) error {
	return &Error{File: d.document.file, Position: positionOf(node), Path: path, Message: fmt.Sprintf(format, args...)}
}

func (d *decoder) decode(node ast.Node, to reflect.Value, path string, depth int) error {
	if depth > maxDepth {
		return d.fail(node, path, "more than %d levels deep; flatten the document", maxDepth)
	}
	switch n := node.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return d.fail(node, path, "anchors and aliases are not read; write the value out")
	case *ast.TagNode:
		return d.fail(node, path, "tags are not read; remove %s", n.Start.Value)
	case *ast.NullNode, nil:
		return d.fail(node, path, "there is no value; write %s or remove the key", describe(to.Type()))
	}
	if !d.plain {
		if _, ok := d.document.at[path]; !ok {
			d.document.at[path] = positionOf(node)
		}
	}
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		return d.decode(node, to.Elem(), path, depth)
	}
	if isScalarType(to) {
		return d.scalar(node, to, path)
	}
	switch to.Kind() {
	case reflect.Struct:
		return d.structure(node, to, path, depth)
	case reflect.Map:
		return d.mapping(node, to, path, depth)
	case reflect.Slice:
		return d.sequence(node, to, path, depth)
	default:
		panic("config: type " + to.Type().String() + " of " + path + " cannot be decoded")
	}
}

// pairs returns the entries of a mapping, after checking that keys are plain and unique.
func (d *decoder) pairs(node ast.Node, to reflect.Type, path string) ([]*ast.MappingValueNode, error) {
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return nil, d.fail(node, path, "not a mapping; write %s", describe(to))
	}
	var few [fewKeys]string
	keys := few[:0]
	var seen map[string]int
	if len(values) > fewKeys {
		seen = make(map[string]int, len(values))
	}
	for i, pair := range values {
		key, ok := keyText(pair)
		if !ok {
			return nil, d.fail(pair.Key, path, "the key is no plain word; write a name such as those in the examples")
		}
		first := slices.Index(keys, key)
		if seen != nil {
			first = seen[key] - 1
		}
		if first >= 0 {
			d.keep(d.fail(pair.Key, d.join(path, key), "duplicate key, first on line %d; remove one of them", positionOf(values[first].Key).Line))
		}
		if len(key) > 256 {
			return nil, d.fail(pair.Key, path, "a key of %d bytes; see the examples for the keys there are", len(key))
		}
		if seen != nil {
			seen[key] = i + 1
		} else {
			keys = append(keys, key)
		}
	}
	return values, nil
}

// fewKeys is up to how many keys are compared with each other, without a map of them: a large document has thousands of small mappings.
const fewKeys = 16

func (d *decoder) structure(node ast.Node, to reflect.Value, path string, depth int) error {
	values, err := d.pairs(node, to.Type(), path)
	if err != nil {
		return err
	}
	fields := fieldsOf(to.Type())
	if d.foreign {
		values = d.foreignKeys(values, fields, path)
	}
	for _, pair := range values {
		key, _ := keyText(pair)
		if d.foreign {
			key = fieldNamed(key, fields)
		}
		at := d.join(path, key)
		known, ok := fields[key]
		if !ok && depth == 0 && isVersion(pair) {
			d.keep(d.version(pair))
			continue
		}
		if known.now != "" {
			d.renamed(pair, path, known.now, values)
			at = d.join(path, known.now)
		}
		if !ok {
			d.keep(&Error{File: d.document.file, Position: positionOf(pair.Key), Path: at, Message: "unknown key; " + d.suggest(path, key, fields), unknown: true})
			continue
		}
		d.note(at, pair)
		if _, isNull := pair.Value.(*ast.NullNode); isNull && known.null {
			continue
		}
		d.keep(d.field(pair.Value, to.Field(known.index), known, at, depth+1))
	}
	return nil
}

// Version is the version of the formats of Weir's own files, which their key version may name: it changes when a file that was valid is
// read in another way. docs/install.md has the rule.
const Version = 1

// isVersion reports whether an entry of the outermost mapping is the version of one of Weir's own formats. STUNner's are words.
func isVersion(pair *ast.MappingValueNode) bool {
	key, _ := keyText(pair)
	_, number := pair.Value.(*ast.IntegerNode)
	return key == "version" && number
}

func (d *decoder) version(pair *ast.MappingValueNode) error {
	if text := pair.Value.GetToken().Value; text != strconv.Itoa(Version) {
		return d.fail(pair.Value, "version", "this weir reads version %d, not %s; write version: %[1]d, or use the weir that the file was written for", Version, text)
	}
	return nil
}

// renamed warns of a key that has another name now. all are the entries of its mapping.
func (d *decoder) renamed(pair *ast.MappingValueNode, path, now string, all []*ast.MappingValueNode) {
	if d.plain {
		d.keep(errWarns)
		return
	}
	key, _ := keyText(pair)
	if slices.ContainsFunc(all, func(other *ast.MappingValueNode) bool { k, _ := keyText(other); return k == now }) {
		d.keep(d.fail(pair.Key, join(path, key), "this is the former name of %s, which is there too; remove it", now))
		return
	}
	d.document.warnings = append(d.document.warnings, d.fail(pair.Key, join(path, key), "this key is called %s now; write that, the old name is not read for ever", now).Error())
}

// errWarns ends the first reading of a document, which has no positions, because there is something to warn of.
var errWarns = errors.New("there are warnings")

// foreignKeys returns the entries of a structure that count, and warns of the others and of those whose case differs.
func (d *decoder) foreignKeys(values []*ast.MappingValueNode, fields map[string]field, path string) (counting []*ast.MappingValueNode) {
	chosen := map[string]string{} // name of a field to the key that counts for it
	for _, pair := range values {
		key, _ := keyText(pair)
		if name := fieldNamed(key, fields); key > chosen[name] {
			chosen[name] = key
		}
	}
	for _, pair := range values {
		key, _ := keyText(pair)
		name := fieldNamed(key, fields)
		switch {
		case name == "":
			d.warn(pair.Key, join(path, key), "unknown key, it has no effect; %s", d.suggest(path, key, fields))
			continue
		case chosen[name] != key:
			d.warn(pair.Key, join(path, key), "it has no effect, because %s in the same mapping names the same key; remove one of them", chosen[name])
			continue
		case name != key:
			d.warn(pair.Key, join(path, key), "read as %s; write it in this case", name)
		}
		counting = append(counting, pair)
	}
	return counting
}

// fieldNamed returns the field that a key means, whatever its case; empty for none.
func fieldNamed(key string, fields map[string]field) string {
	if _, ok := fields[key]; ok {
		return key
	}
	for name := range fields {
		if strings.EqualFold(name, key) {
			return name
		}
	}
	return ""
}

// field decodes one value of a structure according to its tag.
func (d *decoder) field(node ast.Node, to reflect.Value, known field, path string, depth int) error {
	if known.long {
		d.long = true
		defer func() { d.long = false }()
	}
	return d.decode(node, to, path, depth)
}

func (d *decoder) mapping(node ast.Node, to reflect.Value, path string, depth int) error {
	values, err := d.pairs(node, to.Type(), path)
	if err != nil {
		return err
	}
	to.Set(reflect.MakeMapWithSize(to.Type(), len(values)))
	for _, pair := range values {
		key, _ := keyText(pair)
		at := d.join(path, key)
		d.note(at, pair)
		value := reflect.New(to.Type().Elem()).Elem()
		d.keep(d.decode(pair.Value, value, at, depth+1))
		to.SetMapIndex(reflect.ValueOf(key).Convert(to.Type().Key()), value)
	}
	return nil
}

func (d *decoder) sequence(node ast.Node, to reflect.Value, path string, depth int) error {
	n, ok := node.(*ast.SequenceNode)
	if !ok {
		return d.fail(node, path, "not a list; write %s", describe(to.Type()))
	}
	to.Set(reflect.MakeSlice(to.Type(), len(n.Values), len(n.Values)))
	for i, item := range n.Values {
		at := ""
		if !d.plain {
			at = fmt.Sprintf("%s[%d]", path, i)
		}
		d.keep(d.decode(item, to.Index(i), at, depth+1))
	}
	return nil
}

// note records the position of a key's value: of a scalar its own, of anything larger that of its key.
func (d *decoder) note(path string, pair *ast.MappingValueNode) {
	if d.plain {
		return
	}
	if _, ok := pair.Value.(ast.ScalarNode); ok {
		d.document.at[path] = positionOf(pair.Value)
		return
	}
	d.document.at[path] = positionOf(pair.Key)
}

// field is a struct's field as its tag describes it.
type field struct {
	index      int
	null, long bool
	now        string // of a former name: the name now
}

// knownFields are the results of fieldsOf, by type. There are as many as there are types in the code.
var knownFields sync.Map

// fieldsOf maps keys to fields. The map is shared.
func fieldsOf(t reflect.Type) map[string]field {
	if known, ok := knownFields.Load(t); ok {
		return known.(map[string]field)
	}
	fields := map[string]field{}
	for i := range t.NumField() {
		key, options, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if key != "" && key != "-" && t.Field(i).IsExported() {
			list := strings.Split(options, ",")
			f := field{index: i, null: slices.Contains(list, "null"), long: slices.Contains(list, "long")}
			fields[key] = f
			for _, option := range list {
				if was, ok := strings.CutPrefix(option, "was="); ok {
					f.now = key
					fields[was] = f
				}
			}
		}
	}
	knownFields.Store(t, fields)
	return fields
}

func (d *decoder) join(path, key string) string {
	if d.plain {
		return ""
	}
	return join(path, key)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
