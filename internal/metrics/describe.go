package metrics

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Family describes a metric: all samples of one name.
type Family struct {
	Name   string
	Help   string
	Kind   Kind
	Labels []string // of all its samples, sorted
	Unit   string   // seconds, bytes, packets or ratio by its name; empty: a plain number
}

// name is what Prometheus accepts, in the form that this project uses.
var goodName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)+$`)

// Describe returns the metrics of structs with the tags that the package describes, by name. Only their types matter. It
// returns an error for a wrong tag, and if two fields describe a metric differently.
func Describe(values ...any) (families []Family, err error) {
	defer func() {
		if wrong := recover(); wrong != nil {
			err = fmt.Errorf("%v", wrong)
		}
	}()
	w := &walk{types: true, plans: map[reflect.Type]*plan{}}
	for _, value := range values {
		t := reflect.TypeOf(value)
		w.value(reflect.Zero(t), place{})
	}
	byName := map[string]*Family{}
	for i := range w.samples {
		if err := describe(byName, &w.samples[i]); err != nil {
			return nil, err
		}
	}
	for _, f := range byName {
		slices.Sort(f.Labels)
		f.Labels = slices.Compact(f.Labels)
		families = append(families, *f)
	}
	slices.SortFunc(families, func(a, b Family) int { return cmp.Compare(a.Name, b.Name) })
	return families, nil
}

func describe(byName map[string]*Family, s *Sample) error {
	switch {
	case !goodName.MatchString(s.Name):
		return fmt.Errorf("metrics: %q is no name of a metric", s.Name)
	case s.Help == "":
		return fmt.Errorf("metrics: %s has no help text", s.Name)
	}
	f := byName[s.Name]
	if f == nil {
		f = &Family{Name: s.Name, Help: s.Help, Kind: s.Kind, Unit: unitOf(s.Name)}
		byName[s.Name] = f
	}
	if f.Help != s.Help || f.Kind != s.Kind {
		return fmt.Errorf("metrics: %s is described twice: %q and %q", s.Name, f.Help, s.Help)
	}
	for _, label := range s.Labels {
		f.Labels = append(f.Labels, label.Name)
	}
	return nil
}

// unitOf reads the unit from a name, where Prometheus has it at the end, before _total.
func unitOf(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for _, unit := range []string{"seconds", "bytes", "packets", "ratio"} {
		if strings.HasSuffix(name, "_"+unit) {
			return unit
		}
	}
	return ""
}
