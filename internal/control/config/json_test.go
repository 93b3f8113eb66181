package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"

	"github.com/goccy/go-yaml/ast"
)

type jsonDocument struct {
	Services []struct {
		Name     string        `yaml:"name"`
		Timeout  time.Duration `yaml:"timeout"`
		Share    float64       `yaml:"share"`
		On       bool          `yaml:"on"`
		Backends []jsonBackend `yaml:"backends"`
	} `yaml:"services"`
}

type jsonBackend struct {
	Name   string `yaml:"name"`
	Weight int    `yaml:"weight"`
}

// asYAML reads JSON with the parser of YAML.
func asYAML(text string) (ast.Node, error) {
	file, err := parser.Parse(lexer.Tokenize(text), 0, parser.AllowDuplicateMapKey())
	if err != nil || len(file.Docs) != 1 {
		return nil, fmt.Errorf("%d documents, %w", len(file.Docs), err)
	}
	return file.Docs[0].Body, nil
}

// decoded is what a document's nodes mean, with the positions of its values and its errors.
func decoded(root ast.Node) (value jsonDocument, positions map[string]Position, err error) {
	d := &decoder{document: &Document{file: "f", at: map[string]Position{}}, root: reflect.TypeFor[jsonDocument]()}
	d.keep(d.decode(root, reflect.ValueOf(&value).Elem(), "", 0))
	return value, d.document.at, OneOf(d.wrong)
}

// What the reader of JSON takes means the same as read by the parser of YAML: the value, where each part of it is, and the errors.
func sameAsYAML(t *testing.T, text string) {
	t.Helper()
	root, ok := parseJSON([]byte(text))
	if !ok {
		return
	}
	if !json.Valid([]byte(text)) {
		t.Fatalf("%q is no JSON", text)
	}
	other, err := asYAML(text)
	if err != nil {
		return // the parser of YAML is stricter about what is odd
	}
	a, at, wrong := decoded(root)
	b, bt, wrongThere := decoded(other)
	if !reflect.DeepEqual(a, b) || fmt.Sprint(wrong) != fmt.Sprint(wrongThere) {
		t.Errorf("%q\n%+v %v\nas YAML\n%+v %v", text, a, wrong, b, wrongThere)
	}
	if wrong == nil && !reflect.DeepEqual(at, bt) {
		t.Errorf("%q: positions\n%v\nas YAML\n%v", text, at, bt)
	}
}

func TestJSONMeansTheSameAsYAML(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"services":[]}`, ` {"services": [ ] } `,
		`{"services":[{"name":"a","timeout":"30s","share":0.25,"on":true,"backends":[{"name":"x","weight":7},{"name":"y","weight":0}]}]}`,
		"{\n  \"services\": [\n    {\"name\": \"a\",\n     \"backends\": [{\"weight\": 10000, \"name\": \"p\"}]}\n  ]\n}\n",
		`{"services":[{"name":7,"on":"true","share":1e-1}]}`, `{"services":[{"name":null}]}`, `{"services":[{"nam":"a"}]}`,
		`{"services":[{"name":"a","name":"b"}]}`, `{"services":{}}`, `{"services":[{"name":"a\u00e9\n\"\\/"}]}`,
	} {
		sameAsYAML(t, text)
		if _, ok := parseJSON([]byte(text)); !ok {
			t.Errorf("%q is not read as JSON", text)
		}
	}
	for _, text := range []string{
		``, `[]`, `a: 1`, `{a: 1}`, `{"a" 1}`, `{"a":1,}`, `{"a":1}x`, `{"a":01}`, `{"a":tru}`, `{"a":"x`, "{\"a\":\"\n\"}", `{"a":1} # more`, `{"a":'x'}`, "{\"a\":\"\xff\"}",
		`{"a":` + strings.Repeat("[", maxDepth+2) + strings.Repeat("]", maxDepth+2) + `}`,
	} {
		if _, ok := parseJSON([]byte(text)); ok {
			t.Errorf("%q is read as JSON", text)
		}
	}
}

func FuzzJSON(f *testing.F) {
	f.Add(`{"services":[{"name":"a","timeout":"30s","share":0.25,"on":true,"backends":[{"name":"x","weight":7}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) < 1<<12 {
			sameAsYAML(t, text)
		}
	})
}

// large is a document as the operator writes it for ten thousand endpoints.
func large(tb testing.TB) []byte {
	var d struct {
		Services []map[string]any `json:"services"`
	}
	for i := range 1000 {
		s := map[string]any{"name": fmt.Sprint("service-", i)}
		var backends []map[string]any
		for j := range 10 {
			backends = append(backends, map[string]any{"name": fmt.Sprintf("service-%d-7d4f5c6b8-%05d", i, j), "weight": 10000})
		}
		s["backends"] = backends
		d.Services = append(d.Services, s)
	}
	text, err := json.Marshal(d)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// A program may write more than fits into YAML.
func TestLargeJSON(t *testing.T) {
	text := append(large(t), make([]byte, 0)...)
	for len(text) <= MaxBytes {
		text = append(text, strings.Repeat(" ", MaxBytes)...)
	}
	path := filepath.Join(t.TempDir(), "large.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	read, err := NewFile(path).Read()
	if err != nil {
		t.Fatal(err)
	}
	d, _, err := Decode[jsonDocument]("large", read)
	if err != nil || len(d.Services) != 1000 || d.Services[999].Backends[9].Weight != 10000 {
		t.Errorf("%d services, %v", len(d.Services), err)
	}
	if _, _, err := Decode[jsonDocument]("large", make([]byte, MaxJSONBytes+1)); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Error(err)
	}
}

func BenchmarkLargeJSON(b *testing.B) {
	text := large(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, _, err := Decode[jsonDocument]("large", text); err != nil {
			b.Fatal(err)
		}
	}
}
