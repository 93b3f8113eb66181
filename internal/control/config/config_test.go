package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

type sample struct {
	Text     string             `yaml:"text"`
	Number   int                `yaml:"number"`
	Small    uint8              `yaml:"small"`
	Ratio    float64            `yaml:"ratio"`
	On       bool               `yaml:"on"`
	Wait     time.Duration      `yaml:"wait"`
	Address  netip.Addr         `yaml:"address"`
	Endpoint netip.AddrPort     `yaml:"endpoint"`
	Optional *int               `yaml:"optional"`
	List     []string           `yaml:"list"`
	Map      map[string]float64 `yaml:"map"`
	Inner    []inner            `yaml:"inner"`
	Ignored  string             `yaml:"-"`
	Untagged string
}

type inner struct {
	A string `yaml:"a"`
}

func TestDecode(t *testing.T) {
	text := `# all kinds of values
text: "true"
number: -16
small: 255
ratio: 1.5e3
on: true
wait: 1m30s
address: 2001:db8::1
endpoint: "[::1]:5684"
optional: 0
list: [a, 007, "x: y", 1.50]
map:
  one: 1
  "two": 2
inner:
- a: |
    block
    of text
- {a: 'it''s'}
`
	got, document, err := Decode[sample]("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	zero := 0
	want := sample{
		Text: "true", Number: -16, Small: 255, Ratio: 1500, On: true, Wait: 90 * time.Second,
		Address: netip.MustParseAddr("2001:db8::1"), Endpoint: netip.MustParseAddrPort("[::1]:5684"), Optional: &zero,
		List: []string{"a", "007", "x: y", "1.50"}, Map: map[string]float64{"one": 1, "two": 2},
		Inner: []inner{{"block\nof text\n"}, {"it's"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for path, want := range map[string]Position{
		"": {2, 1}, "text": {2, 7}, "list": {11, 1}, "list[2]": {11, 16}, "map.two": {14, 10}, "inner[1]": {19, 3},
		"inner[1].a": {19, 7}, "inner[1].missing.deep[3]": {19, 3}, "nothing": {2, 1},
	} {
		if got := document.Position(path); got != want {
			t.Errorf("%s is at %v, want %v", path, got, want)
		}
	}
	if got := document.Errorf("inner[0].a", "odd; even it").Error(); got != "f.yaml:16:6: inner[0].a: odd; even it" {
		t.Errorf("error %q", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"small: 256":                         `1:8: small: "256" is no whole number in range; write a whole number from 0 to 255`,
		"small: -1":                          `1:8: small: "-1" is no whole number in range; write a whole number from 0 to 255`,
		"number: 1.5":                        `1:9: number: "1.5" is no whole number in range; write a whole number`,
		"ratio: .nan":                        `1:8: ratio: ".nan" is no number; write one such as 0.5`,
		"ratio: .inf":                        `1:8: ratio: ".inf" is no number; write one such as 0.5`,
		"on: yes":                            `1:5: on: "yes" is no truth value; write true or false`,
		"on: True":                           `1:5: on: "True" is no truth value; write true or false`,
		"text: null":                         `1:7: text: there is no value; write a value or remove the key`,
		"text: {a: b}":                       `1:7: text: not a single value; write a value`,
		"wait: 10":                           `1:7: wait: "10" is not a time; write a number with its unit, such as 500ms, 30s or 2h`,
		"address: localhost":                 `1:10: address: "localhost" is not an address; names are not looked up: write an IPv4 or IPv6 address, such as 192.0.2.1 or 2001:db8::1`,
		"endpoint: 1.2.3.4":                  `1:11: endpoint: "1.2.3.4" is not an address with port; write 192.0.2.1:5684 or [2001:db8::1]:5684`,
		"map: [1]":                           `1:6: map: not a mapping; write keys with values, NAME: a number`,
		"Untagged: x":                        `1:1: Untagged: unknown key; known here: address, endpoint, inner, list, map, number, on, optional, ratio, small, text, wait`,
		"inner: [{a: 1, a: 2}]":              `1:16: inner[0].a: duplicate key, first on line 1; remove one of them`,
		"? [a]\n: b":                         `2:1: not YAML: found an invalid key for this map; check`,
		"map: {<<: {a: 1}}":                  `the key is no plain word`,
		strings.Repeat("#", MaxBytes+1):      `1:1: larger than 1048576 bytes; split the document`,
		strings.Repeat("- ", 100) + "x":      `1:65: more than 32 levels deep; flatten the document`,
		"text: " + strings.Repeat("x", 5000): `1:7: text: a value of 5000 bytes; write at most 4096`,
		strings.Repeat("k", 5000) + ": 1":    `a key of 5000 bytes`,
		strings.Repeat("? a\n", 1001):        `more than 1000 keys in one mapping`,
		wide("\n"):                           `1001:6: more than 1000 keys in one mapping`,
		"map: {" + wide(", ") + "}":          `more than 1000 keys in one mapping`,
		"inner:\n- a: x\n  " + wide("\n  "):  `more than 1000 keys in one mapping`,
		strings.Repeat("{a: ", 60) + "x":     `more than 32 levels deep`,
	} {
		_, _, err := Decode[sample]("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want %s", text, err, want)
		}
	}
}

// wide is a mapping of too many keys.
func wide(separator string) string {
	keys := make([]string, maxKeys+1)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d: 1", i)
	}
	return strings.Join(keys, separator)
}

// Long lists of small mappings are no wide mapping.
func TestLongListsAreRead(t *testing.T) {
	got, _, err := Decode[sample]("f", []byte("inner:\n"+strings.Repeat("- a: x\n", 5000)+"list: [a]\n"))
	if err != nil || len(got.Inner) != 5000 {
		t.Errorf("%d entries, %v", len(got.Inner), err)
	}
	got, _, err = Decode[sample]("f", []byte("inner: ["+strings.Repeat("{a: x}, ", 5000)+"]\n"))
	if err != nil || len(got.Inner) != 5000 {
		t.Errorf("%d entries in brackets, %v", len(got.Inner), err)
	}
}

func TestForeignFormats(t *testing.T) {
	type foreign struct {
		Cert  string   `yaml:"cert,omitempty,long,null"`
		List  []inner  `yaml:"list,null"`
		Maybe *string  `yaml:"maybe,null"`
		Inner inner    `yaml:"inner,null"`
		Short []string `yaml:"short"`
	}
	long := strings.Repeat("x", 3*maxValue)
	got, _, err := Decode[foreign]("f", []byte("{\"cert\": \""+long+"\", \"list\": null, \"maybe\": null, \"inner\": null}"))
	if err != nil || got.Cert != long || got.List != nil || got.Maybe != nil {
		t.Errorf("%v", err)
	}
	if _, _, err := Decode[foreign]("f", []byte("cert: a\nshort: ["+long+"]")); err == nil {
		t.Error("the length of one key's value holds for the next")
	}
	if _, _, err := Decode[foreign]("f", []byte("short: null")); err == nil {
		t.Error("null is read where the tag does not say so")
	}
	if keys := Keys([]byte("b: 1\na: {c: 2}\n")); !slices.Equal(keys, []string{"b", "a"}) {
		t.Errorf("keys %v", keys)
	}
	if keys := Keys([]byte("{\"version\": \"v1\",\n\t\"admin\": {}}")); !slices.Equal(keys, []string{"version", "admin"}) {
		t.Errorf("keys %v", keys)
	}
	if keys := Keys([]byte("[")); keys != nil {
		t.Errorf("keys %v of no document", keys)
	}
}

// Another program's files may have keys that are not known here, or known ones in another case.
func TestDecodeForeign(t *testing.T) {
	got, document, warnings, err := DecodeForeign[sample]("f", []byte(`TEXT: a
future: {deep: [1, 2]}
Number: 1
number: 2
NUMBER: 3
inner: [{A: b, c: d}]
`))
	if err != nil || got.Text != "a" || got.Number != 2 || got.Inner[0].A != "b" {
		t.Errorf("%+v, %v", got, err)
	}
	want := []string{
		"f:1:1: TEXT: read as text; write it in this case",
		"f:2:1: future: unknown key, it has no effect; known here: address, endpoint, inner, list, map, number, on, optional, ratio, small, text, wait",
		"f:3:1: Number: it has no effect, because number in the same mapping names the same key; remove one of them",
		"f:5:1: NUMBER: it has no effect, because number in the same mapping names the same key; remove one of them",
		"f:6:10: inner[0].A: read as a; write it in this case",
		"f:6:16: inner[0].c: unknown key, it has no effect; did you mean a?",
	}
	if !slices.Equal(warnings, want) {
		t.Errorf("warnings\n%s\nwant\n%s", strings.Join(warnings, "\n"), strings.Join(want, "\n"))
	}
	if got := document.Position("inner[0].a"); got != (Position{6, 13}) {
		t.Errorf("the value of a key in another case is at %v", got)
	}
	for text, want := range map[string]string{
		"SMALL: 256":       "f:1:8: small: ",
		"text: a\ntext: b": "f:2:1: text: duplicate key",
	} {
		if _, _, _, err := DecodeForeign[sample]("f", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	many := strings.Join(strings.Split(wide("\n"), "\n")[:100], "\n")
	_, _, warnings, err = DecodeForeign[sample]("f", []byte(many))
	if err != nil || len(warnings) != maxWarnings+1 || warnings[maxWarnings] != "f: 80 more keys are unknown or differently cased" {
		t.Errorf("%d warnings, %v", len(warnings), err)
	}
}

func TestReadStopsAtTheBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(path, make([]byte, 3*MaxJSONBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := NewFile(path).Read()
	if err != nil || len(text) != MaxJSONBytes+1 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"text: a\nnumber: 1\n", "inner: [{a: b}]", "map: {x: 1}", "- a\n- b", "&a *a", "!!str x", "? x\n: y", "text: |\n  a\n", "---\n---\n", "a: [", "\t", "\"\\x", "%YAML 1.2"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<14 {
			return
		}
		defer time.AfterFunc(5*time.Second, func() { panic(fmt.Sprintf("still decoding %q", text)) }).Stop()
		if _, document, err := Decode[sample]("f", text); err != nil && !strings.HasPrefix(err.Error(), "f:") || document == nil {
			t.Fatalf("error without place: %v", err)
		}
		if _, _, warnings, err := DecodeForeign[sample]("f", text); err != nil && !strings.HasPrefix(err.Error(), "f:") || len(warnings) > maxWarnings+1 {
			t.Fatalf("%d warnings, error without place: %v", len(warnings), err)
		}
	})
}

// A megabyte of brackets is refused before it becomes a token each.
func TestDeepNestingCostsNoMemory(t *testing.T) {
	for name, text := range map[string]string{
		"sequences": strings.Repeat("[", MaxBytes), "mappings": strings.Repeat("{a: ", MaxBytes/4), "entries": strings.Repeat("- ", MaxBytes/2),
		"keys": "x: 1\n" + strings.Repeat("? ", MaxBytes/2-3),
	} {
		var before, after runtime.MemStats
		document := []byte(text)
		runtime.ReadMemStats(&before)
		_, _, err := Decode[struct{}]("bad.yaml", document)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "more than 32 levels deep; flatten the document") {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%s: %d bytes were allocated to refuse it", name, took)
		}
	}
	long := "[" + strings.Repeat("[1], ", 1000) + "[1]]" // wide is not deep
	if _, _, err := Decode[struct {
		A [][]int `yaml:"a"`
	}]("good.yaml", []byte("a: "+long)); err != nil {
		t.Error(err)
	}
}
