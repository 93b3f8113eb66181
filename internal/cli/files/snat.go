package files

import (
	"strings"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/snat"
)

// ScenarioNames are the names of scenarios, each with its table's if it has one.
func ScenarioNames(all []snat.Scenario) []string {
	var names []string
	for _, s := range all {
		names = append(names, strings.TrimPrefix(s.Table+": "+s.Name, ": "))
	}
	return names
}

// ReadScenarios reads a file of scenarios. An error names file, line and key.
func ReadScenarios(path string) ([]snat.Scenario, error) {
	text, err := config.Once(path)
	if err != nil {
		return nil, &cli.ExitError{Code: cli.ExitUsage, Err: err}
	}
	return Scenarios(path, text)
}

// Scenarios is ReadScenarios of a text.
func Scenarios(name string, text []byte) ([]snat.Scenario, error) {
	file, document, err := config.Decode[snat.File](name, text)
	validate := func() error { return document.Locate(file.Validate()) }
	if err != nil {
		err = document.Also(err, validate)
	} else {
		err = validate()
	}
	if err != nil {
		return nil, cli.UsageError(err)
	}
	for i := range file.Scenarios {
		file.Scenarios[i] = file.Scenarios[i].WithDefaults()
	}
	return file.Scenarios, nil
}
