package cli

import "github.com/spf13/cobra"

// Family is a command with all below it, and what a shell offers for their flags and arguments in addition to what [flagValues] and
// [flagFiles] say of every command.
type Family struct {
	Command   func() *cobra.Command
	Values    func() map[string][]string             // of a flag ("--name"), or of one command's flag ("weir command --name"), which wins; nil: none
	Arguments func() map[string]cobra.CompletionFunc // of a command's arguments ("weir command"); nil: none
}
