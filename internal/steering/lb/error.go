package lb

import "fmt"

// Errors are several things wrong with a spec. As one error it is the first, with the number of the others.
type Errors []*Error

func (e Errors) Error() string { return fmt.Sprintf("%v (and %d more)", e[0], len(e)-1) }

// Unwrap returns all of them.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

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
