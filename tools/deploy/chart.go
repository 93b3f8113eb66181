package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// valuesOf reads a file of values; without a file there are none.
func valuesOf(file string) (chartutil.Values, error) {
	if file == "" {
		return chartutil.Values{}, nil
	}
	return chartutil.ReadValuesFile(file)
}

// renderChart returns the manifests of a chart, as `helm template` does, ordered by file.
func renderChart(directory, file, name, namespace string) (string, error) {
	chart, err := loader.LoadDir(directory)
	if err != nil {
		return "", err
	}
	given, err := valuesOf(file)
	if err != nil {
		return "", err
	}
	values, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: name, Namespace: namespace, IsInstall: true, Revision: 1}, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	rendered, err := engine.Render(chart, values)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, path := range slices.Sorted(maps.Keys(rendered)) {
		text := strings.TrimSpace(rendered[path])
		if text != "" && filepath.Ext(path) == ".yaml" {
			fmt.Fprintf(&out, "---\n# %s\n%s\n", filepath.Base(path), text)
		}
	}
	return out.String(), nil
}

// lintChart is `helm lint --strict`.
func lintChart(directory, file, namespace string) error {
	given, err := valuesOf(file)
	if err != nil {
		return err
	}
	result := lint.All(directory, given, namespace, true)
	var all []error
	for _, message := range result.Messages {
		if message.Severity >= support.WarningSev {
			all = append(all, errors.New(message.Error()))
		}
	}
	return errors.Join(all...)
}
