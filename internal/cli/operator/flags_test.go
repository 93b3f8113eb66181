package operator

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// Each controller can be left out; options of one that is left out are refused, with a remedy.
func TestControllersCanBeLeftOut(t *testing.T) {
	for args, want := range map[string]string{
		"--controllers l4,turn":                "2 controllers",
		"--controllers l4":                     "1 controllers",
		"--controllers turn":                   "1 controllers",
		"--controllers l7":                     "write l4, turn or l4,turn",
		"--controllers turn --config-out /tmp": "leave them out",
		"--controllers l4 --auth :1":           "leave it out",
		"--controllers turn --announce a.yaml": "leave them out",
		"--controllers l4 --announce a.yaml":   "give one of them",
	} {
		var f flags
		set := pflag.NewFlagSet("operator", pflag.ContinueOnError)
		set.StringSliceVar(&f.serves, "controllers", nil, "")
		f.l4.add(set)
		f.turn.add(set)
		clitest.Must(t, set.Parse(strings.Fields(args)))
		s, err := f.controllers(slog.New(slog.DiscardHandler))
		if count, ok := strings.CutSuffix(want, " controllers"); ok {
			if err != nil || len(s.all) != int(count[0]-'0') {
				t.Errorf("%s: %d, %v", args, len(s.all), err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
