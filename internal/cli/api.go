package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/docs/openapi"
)

func newAPICommand() *cobra.Command {
	return &cobra.Command{
		Use:   "api PART",
		Short: "Print the description of the admin API of a part, as OpenAPI",
		Long: `Print the description of the admin API of a part, as OpenAPI 3.1 in JSON: paths, parameters, requests, answers and errors. Parts are
` + strings.Join(openapi.Parts(), ", ") + `.

It has all paths of the part. GET /openapi.json of a running one has those that it serves.`,
		Example: `  weir api lb > lb.json
  weir api lb | jq -r '.paths | keys[]'
  weir api turn | jq '.components.schemas.TurnUser'`,
		ValidArgs: openapi.Parts(),
		Args:      cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := openapi.Of(args[0])
			if text == nil {
				return UsageError(fmt.Errorf("no part %q; write one of %s", args[0], strings.Join(openapi.Parts(), ", ")))
			}
			_, err := cmd.OutOrStdout().Write(text)
			return err
		},
	}
}
