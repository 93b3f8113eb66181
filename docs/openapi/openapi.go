// Package openapi has the descriptions of the admin APIs, one document of OpenAPI 3.1 for each part, as the files of its folder. They are
// generated from the routes and from the Go types of api/v1 by a test of cmd/weir.
package openapi

import (
	"embed"
	"slices"
	"strings"
)

//go:embed *.json
var documents embed.FS

// Of returns the document of a part, such as lb; nil: there is none.
func Of(part string) []byte {
	text, err := documents.ReadFile(part + ".json")
	if err != nil {
		return nil
	}
	return text
}

// Parts returns the names of all parts that have a document.
func Parts() (names []string) {
	entries, err := documents.ReadDir(".")
	if err != nil {
		return nil // cannot happen: the folder is in the program
	}
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".json"))
	}
	slices.Sort(names)
	return names
}
