package lb

import "fmt"

// Error says what is wrong with a spec: where, what, and what to write instead.
type Error struct {
	Path   string // in the spec's own order and names, such as services[0].vips[1].port
	What   string
	Remedy string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.What + "; " + e.Remedy
	}
	return fmt.Sprintf("%s: %s; %s", e.Path, e.What, e.Remedy)
}
