package config

import (
	"slices"
	"strings"
	"testing"
)

// Every format of our own may name its version. One that this program does not read is one clear error.
func TestVersion(t *testing.T) {
	got, _, err := Decode[sample]("f", []byte("version: 1\ntext: a\n"))
	if err != nil || got.Text != "a" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, _, err = Decode[sample]("f", []byte(`{"version": 1, "text": "a"}`)); err != nil || got.Text != "a" {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"text: a\nversion: 2\n":        "f:2:10: version: this weir reads version 1, not 2; write version: 1, or use the weir that the file was written for",
		"version: 01\n":                "f:1:10: version: this weir reads version 1, not 01",
		"version: one\n":               "f:1:1: version: unknown key",
		"inner:\n- {version: 1}\n":     "f:2:4: inner[0].version: unknown key",
		"version: 1\nversion: 1\n":     "f:2:1: version: duplicate key",
		"version: 1\nnumber: {a: b}\n": "f:2:9: number: ",
	} {
		if _, _, err := Decode[sample]("f", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
	type versioned struct {
		Version int `yaml:"version"`
	}
	if got, _, err := Decode[versioned]("f", []byte("version: 7")); err != nil || got.Version != 7 {
		t.Errorf("a format with a key of that name: %+v, %v", got, err)
	}
	if keys := Keys([]byte("version: 1\na: b\n")); !slices.Equal(keys, []string{"a"}) {
		t.Errorf("keys %v", keys)
	}
	if keys := Keys([]byte("version: v1\na: b\n")); !slices.Equal(keys, []string{"version", "a"}) {
		t.Errorf("keys %v, of another program's format", keys)
	}
}

// The former name of a key is read, and a warning says what to write.
func TestFormerNames(t *testing.T) {
	type inner struct {
		Size int `yaml:"size,was=length"`
	}
	type renamed struct {
		Inner []inner `yaml:"inner,was=list"`
	}
	got, document, err := Decode[renamed]("f", []byte("list:\n- {length: 3}\n- {size: 4}\n"))
	if err != nil || !slices.Equal(got.Inner, []inner{{3}, {4}}) {
		t.Fatalf("%+v, %v", got, err)
	}
	want := []string{
		"f:1:1: list: this key is called inner now; write that, the old name is not read for ever",
		"f:2:4: inner[0].length: this key is called size now; write that, the old name is not read for ever",
	}
	if warnings := document.Warnings(); !slices.Equal(warnings, want) {
		t.Errorf("warnings\n%s\nwant\n%s", strings.Join(warnings, "\n"), strings.Join(want, "\n"))
	}
	if p := document.Position("inner[0].size"); p != (Position{2, 12}) {
		t.Errorf("the value is at %v", p)
	}
	if _, document, err := Decode[renamed]("f", []byte("inner:\n- {size: 4}\n")); err != nil || document.Warnings() != nil {
		t.Errorf("%v, %v", document.Warnings(), err)
	}
	_, _, err = Decode[renamed]("f", []byte("inner:\n- {size: 4, length: 3}\n"))
	if want := "f:2:13: inner[0].length: this is the former name of size, which is there too; remove it"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, _, err := Decode[renamed]("f", []byte("list:\n- {length: x}\n")); err == nil || !strings.HasPrefix(err.Error(), "f:2:12: inner[0].size: ") {
		t.Errorf("%v", err)
	}
}
