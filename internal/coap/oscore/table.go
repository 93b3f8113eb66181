package oscore

import (
	"errors"
	"fmt"
)

// MaxContexts bounds a Table.
const MaxContexts = 65536

// Table finds contexts by what a request names. It does not change once it is used, so any goroutine may use it.
type Table struct {
	all    []*Context
	byKID  map[string]*Context // nil for one that several contexts have
	byBoth map[string]*Context // kid context, behind its length, and kid
}

// NewTable returns a Table of contexts. Two with the same recipient ID need different ID contexts.
func NewTable(contexts ...*Context) (*Table, error) {
	if len(contexts) > MaxContexts {
		return nil, fmt.Errorf("%d contexts, at most %d", len(contexts), MaxContexts)
	}
	t := &Table{all: contexts, byKID: map[string]*Context{}, byBoth: map[string]*Context{}}
	for i, c := range contexts {
		p := &c.parameters
		both := string(appendKey(nil, p.IDContext, p.RecipientID))
		if other, taken := t.byBoth[both]; taken {
			return nil, fmt.Errorf("contexts[%d]: recipient_id and id_context are those of %q, too; requests could not be distinguished", i, other.Name())
		}
		t.byBoth[both] = c
		if _, several := t.byKID[string(p.RecipientID)]; several {
			c = nil
		}
		t.byKID[string(p.RecipientID)] = c
	}
	return t, nil
}

func appendKey(dst, idContext, kid []byte) []byte {
	return append(append(append(dst, byte(len(idContext))), idContext...), kid...)
}

// find returns the context of a request, or nil. A request without a kid context finds its context where no other has the
// same kid.
func (t *Table) find(o *Option) *Context {
	if t == nil || len(o.KID) > MaxID || len(o.KIDContext) > MaxIDContext {
		return nil
	}
	if !o.HasContext {
		return t.byKID[string(o.KID)]
	}
	var key [1 + MaxIDContext + MaxID]byte
	return t.byBoth[string(appendKey(key[:0], o.KIDContext, o.KID))]
}

// Contexts are those of NewTable.
func (t *Table) Contexts() []*Context {
	if t == nil {
		return nil
	}
	return t.all
}

// Named returns the context with a name.
func (t *Table) Named(name string) (*Context, error) {
	for _, c := range t.Contexts() {
		if c.Name() == name {
			return c, nil
		}
	}
	return nil, errors.New("there is no context of this name")
}
