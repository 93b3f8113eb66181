// Package snat holds the scenarios that `weir snat lab` runs when it is given no file.
package snat

import _ "embed" // the files in this folder

//go:embed source-document.yaml
var sourceDocument []byte

//go:embed lab.yaml
var lab []byte

// Scenarios are the files by name: the source document's tables, and what only the lab can show.
func Scenarios() []File {
	return []File{{"source-document.yaml", sourceDocument}, {"lab.yaml", lab}}
}

// File is one of them.
type File struct {
	Name string
	Text []byte
}
