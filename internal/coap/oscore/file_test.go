package oscore

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const goodFile = `contexts:
  - name: one
    master_secret: "0102030405060708090a0b0c0d0e0f10"
    master_salt: "9e7ca92223786340"
    id_context: "37cbf3210017a2d3"
    sender_id: "01"
    recipient_id: "02"
  - {name: two, master_secret: "1112131415161718191a1b1c1d1e1f10", sender_id: "03", recipient_id: "", renewable: true}
`

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "contexts.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file gives contexts with all their values; sequence numbers go to the state file, by default next to it.
func TestLoad(t *testing.T) {
	path := written(t, goodFile)
	if err := Check(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + ".state"); !os.IsNotExist(err) {
		t.Errorf("Check took numbers: %v", err)
	}
	contexts, err := Load(path, 8)
	if err != nil || len(contexts) != 2 {
		t.Fatalf("%d contexts, %v", len(contexts), err)
	}
	one, two := contexts[0].parameters, contexts[1].parameters
	for what, pair := range map[string][2]string{
		"names":      {one.Name + " " + two.Name, "one two"},
		"secret":     {hex.EncodeToString(one.MasterSecret), "0102030405060708090a0b0c0d0e0f10"},
		"salt":       {hex.EncodeToString(one.MasterSalt), "9e7ca92223786340"},
		"id context": {hex.EncodeToString(one.IDContext), "37cbf3210017a2d3"},
		"ids":        {hex.EncodeToString(one.SenderID) + " " + hex.EncodeToString(one.RecipientID), "01 02"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %s, want %s", what, pair[0], pair[1])
		}
	}
	if two.IDContext != nil || len(two.RecipientID) != 0 {
		t.Errorf("%+v: want no id context and an empty recipient id", two)
	}
	if one.Renewable || contexts[0].renewal != nil || !two.Renewable || contexts[1].renewal == nil {
		t.Error("renewable: want the second one alone")
	}
	if contexts[0].reserved != 8 {
		t.Errorf("%d numbers are reserved", contexts[0].reserved)
	}
	if _, err := os.Stat(path + ".state"); err != nil {
		t.Error(err)
	}
	state := filepath.Join(t.TempDir(), "elsewhere")
	if _, err := Load(written(t, "state: "+state+"\n"+goodFile), 1); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(state); err != nil {
		t.Error(err)
	}
}

// LoadOne finds a context by its name, and the only one without; it takes numbers for no other.
func TestLoadOne(t *testing.T) {
	path := written(t, goodFile)
	c, err := LoadOne(path, "two", true, 4)
	if err != nil || c.Name() != "two" {
		t.Fatalf("%v, %v", c, err)
	}
	if text, err := os.ReadFile(path + ".state"); err != nil || strings.Count(string(text), ":") != 1 {
		t.Errorf("state %s, %v: want one context", text, err)
	}
	for name, named := range map[string]bool{"three": true, "": false} {
		if _, err := LoadOne(path, name, named, 1); err == nil || !strings.HasSuffix(err.Error(), "choose one of its contexts, as "+path+"#NAME: one, two") {
			t.Errorf("%q: %v", name, err)
		}
	}
	single := written(t, strings.Replace(goodFile, "  - {name: two", "# ", 1))
	if c, err := LoadOne(single, "", false, 1); err != nil || c.Name() != "one" {
		t.Errorf("the only one: %v, %v", c, err)
	}
	if _, err := LoadOne(single, "", true, 1); err == nil {
		t.Error("a context of the empty name")
	}
	if _, err := LoadOne(path+"x", "one", true, 1); err == nil || !strings.HasPrefix(err.Error(), "oscore: ") {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path+".state", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOne(path, "one", true, 1); err == nil || !strings.Contains(err.Error(), `oscore: context "one": `) {
		t.Errorf("a damaged state file: %v", err)
	}
}

// What is wrong with a file is named with its line, column and key; no secret is.
func TestLoadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"contexts: []\n": ":1:1: contexts: 0 contexts; list 1 to 65536",
		"context: []\n":  "context: unknown key",
		strings.Replace(goodFile, "name: one", "name: ''", 1):                              ":2:11: contexts[0].name: no name",
		strings.Replace(goodFile, "name: two", "name: one", 1):                             ":8:12: contexts[1].name: another context has this name",
		strings.Replace(goodFile, "9e7ca92223786340", "9e7ca9222378634", 1):                ":4:18: contexts[0].master_salt: no even number of hexadecimal digits",
		strings.Replace(goodFile, `"02"`, `"01"`, 1):                                       ":7:19: contexts[0].recipient_id: it is the sender_id, too",
		strings.Replace(goodFile, "1112131415161718191a1b1c1d1e1f10", "11121314151617", 1): "contexts[1].master_secret: 7 bytes are too few",
	} {
		path := written(t, text)
		_, err := Load(path, 1)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "010203") {
			t.Errorf("error %v, want %s", err, want)
		}
		if checked := Check(path); checked == nil || checked.Error() != err.Error() {
			t.Errorf("Check says %v, Load %v", checked, err)
		}
	}
}
