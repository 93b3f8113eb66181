package oscore

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/keyerror"
)

// file is a file of security contexts.
type file struct {
	State    string  `yaml:"state,omitempty"`
	Contexts []entry `yaml:"contexts"`
}

// entry is one context; bytes are in hexadecimal digits.
type entry struct {
	Name         string  `yaml:"name"`
	MasterSecret string  `yaml:"master_secret"`
	MasterSalt   string  `yaml:"master_salt,omitempty"`
	IDContext    *string `yaml:"id_context,omitempty"`
	SenderID     string  `yaml:"sender_id"`
	RecipientID  string  `yaml:"recipient_id"`
	Renewable    bool    `yaml:"renewable,omitempty"`
}

// Load reads a file of contexts:
//
//	state: /var/lib/weir/oscore.state   # of the sequence numbers; default: the file with .state behind its name
//	contexts:
//	  - name: device-7
//	    master_secret: "0102030405060708090a0b0c0d0e0f10"
//	    master_salt: "9e7ca92223786340"
//	    id_context: "37cbf3210017a2d3"
//	    sender_id: "01"
//	    recipient_id: "02"
//	    renewable: true                 # of a server: Parameters.Renewable
//
// Each takes step sequence numbers from the state file at a time, the first ones now. Errors name file, line and key, and no secret.
func Load(path string, step uint64) ([]*Context, error) {
	return load(path, func(Parameters) bool { return true }, step)
}

// Check reads a file of contexts and reports what is wrong with it. It takes no sequence numbers.
func Check(path string) error {
	text, err := config.Once(path)
	if err != nil {
		return err // it names the file
	}
	_, err = CheckText(path, text)
	return err
}

// CheckText is Check of a text. It returns the names of the contexts, and all that is wrong.
func CheckText(path string, text []byte) (names []string, err error) {
	f, document, err := config.Decode[file](path, text)
	validate := func() error { return document.Locate(f.validate()) }
	if err != nil {
		return nil, document.Also(err, validate)
	}
	for _, e := range f.Contexts {
		names = append(names, e.Name)
	}
	return names, validate()
}

// validate returns what is wrong: a [keyerror.Error], or [keyerror.Errors].
func (f *file) validate() error {
	var wrong keyerror.List
	if len(f.Contexts) == 0 || len(f.Contexts) > MaxContexts {
		return keyerror.Errorf("contexts", "%d contexts; list 1 to %d", len(f.Contexts), MaxContexts)
	}
	names := map[string]bool{}
	for i := range f.Contexts {
		at := fmt.Sprintf("contexts[%d]", i)
		p, err := f.Contexts[i].parameters()
		wrong.Add(keyerror.At(at, err))
		wrong.If(err == nil && names[p.Name], at+".name", "another context has this name")
		names[p.Name] = true
	}
	return wrong.Err()
}

// LoadOne is Load for one context of a file, the one with a name, or, unless named, the only one.
func LoadOne(path, name string, named bool, step uint64) (*Context, error) {
	var names []string
	if _, err := load(path, func(p Parameters) bool { names = append(names, p.Name); return false }, 0); err != nil {
		return nil, err
	}
	if !named && len(names) == 1 {
		name = names[0]
	}
	contexts, err := load(path, func(p Parameters) bool { return p.Name == name }, step)
	switch {
	case err != nil:
		return nil, err
	case len(contexts) == 1:
		return contexts[0], nil
	}
	return nil, fmt.Errorf("oscore: %s: choose one of its contexts, as %s#NAME: %s", path, path, strings.Join(names[:min(len(names), 10)], ", "))
}

// load reads a file and makes the contexts that are wanted.
func load(path string, wanted func(Parameters) bool, step uint64) ([]*Context, error) {
	text, err := config.Once(path)
	if err != nil {
		return nil, fmt.Errorf("oscore: %w", err)
	}
	f, document, err := config.Decode[file](path, text)
	if err != nil {
		return nil, err
	}
	if err := f.validate(); err != nil {
		return nil, document.Locate(err)
	}
	if f.State == "" {
		f.State = path + ".state"
	}
	store := NewFileStore(f.State)
	contexts := make([]*Context, 0, len(f.Contexts))
	for i := range f.Contexts {
		p, err := f.Contexts[i].parameters()
		if err != nil {
			return nil, document.Locate(keyerror.At(fmt.Sprintf("contexts[%d]", i), err))
		}
		if !wanted(p) {
			continue
		}
		c, err := New(p, store, step)
		if err != nil {
			return nil, fmt.Errorf("oscore: context %q: %w", p.Name, err)
		}
		contexts = append(contexts, c)
	}
	return contexts, nil
}

// parameters reads the entry. An error is a [keyerror.Error].
func (e *entry) parameters() (p Parameters, err error) {
	if e.Name == "" {
		return p, keyerror.Errorf("name", "no name; give one, for logs and commands")
	}
	p.Name, p.Renewable = e.Name, e.Renewable
	idContext := ""
	if e.IDContext != nil {
		idContext = *e.IDContext
	}
	for _, field := range []struct {
		key, text string
		into      *[]byte
	}{
		{"master_secret", e.MasterSecret, &p.MasterSecret},
		{"master_salt", e.MasterSalt, &p.MasterSalt},
		{"id_context", idContext, &p.IDContext},
		{"sender_id", e.SenderID, &p.SenderID},
		{"recipient_id", e.RecipientID, &p.RecipientID},
	} {
		if *field.into, err = hex.DecodeString(field.text); err != nil {
			return p, keyerror.Errorf(field.key, "no even number of hexadecimal digits; write them in quotes")
		}
	}
	if e.IDContext == nil {
		p.IDContext = nil
	}
	return p, p.Validate()
}
