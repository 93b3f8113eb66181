package v1

import (
	"fmt"
	"slices"
)

// Finding is the result of one check: an element of the list that `weir doctor --json` and `weir tcp doctor --json` print.
type Finding struct {
	Check  string       `json:"check"`          // name
	Level  FindingLevel `json:"level"`          // ok, warn or fail
	Have   uint64       `json:"have,omitempty"` // value of a limit; absent: the check is of no limit, or it is 0
	Need   uint64       `json:"need,omitempty"` // value of that limit that is wanted; absent as Have
	What   string       `json:"what"`           // for people
	Remedy string       `json:"cure,omitempty"` // a shell command; absent: all is well. The key keeps its first name, for programs that read it
}

// FindingLevel is the severity of a finding. A higher level is worse.
type FindingLevel uint8

// The levels.
const (
	FindingOK   FindingLevel = iota
	FindingWarn              // works, but worse than possible, or not always
	FindingFail              // packets are lost, or what is wanted does not fit
)

func findingLevels() []string { return []string{"ok", "warn", "fail"} }

// String is ok, warn or fail.
func (l FindingLevel) String() string {
	if all := findingLevels(); int(l) < len(all) {
		return all[l]
	}
	return fmt.Sprintf("level %d", uint8(l))
}

// MarshalText writes String.
func (l FindingLevel) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads String.
func (l *FindingLevel) UnmarshalText(text []byte) error {
	i := slices.Index(findingLevels(), string(text))
	if i < 0 {
		return fmt.Errorf("level %q of a finding: want ok, warn or fail", text)
	}
	*l = FindingLevel(i)
	return nil
}
