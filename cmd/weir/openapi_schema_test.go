package main

import (
	"encoding"
	"encoding/json"
	"go/ast"
	"go/token"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// object is a value of a document in JSON.
type object = map[string]any

// schemas are the types of api/v1 that a document uses, as JSON Schema, with their comments.
type schemas struct {
	comments map[string]string // by type, and by type.field
	named    object
}

func newSchemas(t *testing.T) *schemas {
	t.Helper()
	s := &schemas{comments: map[string]string{}, named: object{}}
	eachFile(t, func(pkg, _ string, file *ast.File, _ *token.FileSet) {
		if pkg != "../api/v1" {
			return
		}
		for _, decl := range file.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range types.Specs {
				if of, ok := spec.(*ast.TypeSpec); ok {
					s.comments[of.Name.Name] = oneLine(types.Doc.Text())
					s.fields(of)
				}
			}
		}
	})
	return s
}

func (s *schemas) fields(of *ast.TypeSpec) {
	structure, ok := of.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range structure.Fields.List {
		for _, name := range field.Names {
			s.comments[of.Name.Name+"."+name.Name] = oneLine(field.Doc.Text() + field.Comment.Text())
		}
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// of is the schema of a type. A structure is a component.
func (s *schemas) of(t reflect.Type) object {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[any]():
		return object{} // any value
	case reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Slice:
		return object{"type": "array", "items": s.orNull(t.Elem())}
	case reflect.Array:
		return object{"type": "array", "items": s.orNull(t.Elem()), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.orNull(t.Elem())}
	case reflect.Struct:
		s.structure(t)
		return object{"$ref": "#/components/schemas/" + t.Name()}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	}
	return object{"type": "integer", "minimum": 0}
}

// orNull is the schema of a type whose nil is null.
func (s *schemas) orNull(t reflect.Type) object {
	schema := s.of(t)
	if kind := t.Kind(); kind != reflect.Pointer && kind != reflect.Slice && kind != reflect.Map {
		return schema
	}
	if kind, ok := schema["type"]; ok {
		schema["type"] = []any{kind, "null"}
		return schema
	}
	return object{"anyOf": []any{schema, object{"type": "null"}}}
}

// structure enters the schema of a structure.
func (s *schemas) structure(t reflect.Type) {
	if s.named[t.Name()] != nil {
		return
	}
	schema, properties := object{"type": "object"}, object{}
	s.named[t.Name()] = schema // it may be in itself
	required := map[string]bool{}
	s.properties(t, properties, required)
	schema["properties"] = properties
	if len(required) > 0 {
		schema["required"] = slices.Sorted(maps.Keys(required))
	}
	if text := s.comments[t.Name()]; text != "" {
		schema["description"] = text
	}
}

// properties enters the fields of a structure; those of an embedded one are its own, unless it has another one with this key.
func (s *schemas) properties(t reflect.Type, into object, required map[string]bool) {
	var embedded []reflect.Type
	for i := range t.NumField() {
		field := t.Field(i)
		key, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && key == "" {
			embedded = append(embedded, field.Type)
			continue
		}
		if key == "-" || into[key] != nil {
			continue
		}
		schema := s.orNull(field.Type)
		if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
			schema = s.of(field.Type)
		} else {
			required[key] = true
		}
		if text := s.comments[t.Name()+"."+field.Name]; text != "" {
			schema["description"] = text
		}
		into[key] = schema
	}
	for _, one := range embedded {
		s.properties(one, into, required)
	}
}

// The schema of a type is that of its JSON: of every field a golden file has a value.
func TestSchemasAreThoseOfTheTypes(t *testing.T) {
	s := newSchemas(t)
	s.of(reflect.TypeFor[v1.LBStatus]())
	status, _ := s.named["LBStatus"].(object)
	properties, _ := status["properties"].(object)
	for key, want := range map[string]string{
		"generation": `{"description":"number of the snapshot in force, which overrides and probes change too; 0: none yet","minimum":0,"type":"integer"}`,
		"failed_at":  `{"description":"FailedAt is when the last configuration was refused. Absent: it was not.","format":"date-time","type":"string"}`,
		"services":   `{"description":"ordered by name; null before the first configuration","items":{"$ref":"#/components/schemas/ServiceStatus"},"type":["array","null"]}`,
		"ebpf":       `{"$ref":"#/components/schemas/EBPFStatus","description":"Kernel is the eBPF data path, or the program of the fast path in front of queues. Absent: there is none."}`,
	} {
		if text, err := json.Marshal(properties[key]); err != nil || string(text) != want {
			t.Errorf("%s: %s, want %s; %v", key, text, want, err)
		}
	}
	if required, _ := status["required"].([]string); !slices.Contains(required, "generation") || slices.Contains(required, "failed_at") {
		t.Errorf("required %v", required)
	}
}
