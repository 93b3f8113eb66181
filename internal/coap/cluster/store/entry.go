package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/coap/cluster/replica"
)

// maxValue bounds what is read of an entry, in bytes.
const maxValue = 512

// value is an entry as it is stored. Its term is the store's revision.
type value struct {
	Version int     `json:"version"`
	Buddy   process `json:"buddy,omitzero"`
	Taken   bool    `json:"taken,omitempty"`
	By      process `json:"by,omitzero"`
	After   uint64  `json:"after,omitempty"` // term of the entry before: no two changes write the same, which a store might leave out
}

// valueVersion is that of the format. Entries of another version are not changed, nor read as something else.
const valueVersion = 1

type process struct {
	Node uint8  `json:"node"`
	Boot string `json:"boot"` // hexadecimal: a number of 64 bits is not exact in every JSON reader
}

func processOf(p replica.Process) process {
	if p == (replica.Process{}) {
		return process{}
	}
	return process{p.Node, strconv.FormatUint(p.Boot, 16)}
}

func (p process) process() (replica.Process, error) {
	if p == (process{}) {
		return replica.Process{}, nil
	}
	boot, err := strconv.ParseUint(p.Boot, 16, 64)
	if err != nil || boot == 0 {
		return replica.Process{}, fmt.Errorf("%q is no number of a process", p.Boot)
	}
	return replica.Process{Node: p.Node, Boot: boot}, nil
}

// encode returns what c makes of an entry.
func encode(c *replica.Change) []byte {
	text, _ := json.Marshal(value{valueVersion, processOf(c.Buddy), c.Taken, processOf(c.By), c.Term}) // cannot fail: strings and numbers
	return text
}

// decode reads an entry.
func decode(owner replica.Process, term uint64, text []byte) (e replica.Entry, err error) {
	if len(text) > maxValue {
		return e, fmt.Errorf("entry of process %s: %d bytes, at most %d", owner, len(text), maxValue)
	}
	var v value
	if err := json.Unmarshal(text, &v); err != nil {
		return e, fmt.Errorf("entry of process %s: %w", owner, err)
	}
	if v.Version != valueVersion {
		return e, fmt.Errorf("entry of process %s: version %d, this program knows %d", owner, v.Version, valueVersion)
	}
	buddy, err1 := v.Buddy.process()
	by, err2 := v.By.process()
	if err := errors.Join(err1, err2); err != nil {
		return e, fmt.Errorf("entry of process %s: %w", owner, err)
	}
	return replica.Entry{Owner: owner, Term: term, Buddy: buddy, Taken: v.Taken, By: by}, nil
}

// name is the key of a process behind the prefix.
func name(p replica.Process) string { return fmt.Sprintf("%d/%016x", p.Node, p.Boot) }

// parseName is its inverse.
func parseName(text string) (p replica.Process, ok bool) {
	node, boot, found := strings.Cut(text, "/")
	number, err1 := strconv.ParseUint(node, 10, 8)
	p.Node = uint8(number)
	var err2 error
	p.Boot, err2 = strconv.ParseUint(boot, 16, 64)
	return p, found && err1 == nil && err2 == nil && p.Boot != 0 && name(p) == text
}

// gone is an entry that has existed and does no more, at a revision of the store.
func gone(owner replica.Process, revision uint64) replica.Entry {
	return replica.Entry{Owner: owner, Term: revision, Taken: true}
}
