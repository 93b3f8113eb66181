package turn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// movedAllocations is what `weir turn export` writes and `import` reads.
type movedAllocations struct {
	Allocations []allocation.Record `json:"allocations"`
}

// importAllocations restores as many allocations of an export as possible. An error means that the text is not an
// export.
func importAllocations(ctx context.Context, g *gateway.Gateway, text []byte) (v1.TurnImport, error) {
	records, err := gateway.ParseExport(text)
	if err != nil {
		return v1.TurnImport{}, err
	}
	restored, err := g.Import(ctx, records)
	result := v1.TurnImport{Restored: restored, Refused: len(records) - restored}
	if err != nil {
		result.Why = err.Error()
	}
	return result, nil
}

func newTurnExportCommand() *cobra.Command {
	var flags cli.ClientFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the allocations of a running gateway as JSON, for another host that takes over its addresses",
		Long: `Writes every allocation of a running gateway: client, relay addresses, permissions, channels, lifetimes; no secret. The
gateway goes on serving them. To move them, stop the old gateway at once, give its addresses (listener and relay) to the
other host, and import there. Clients notice nothing but the gap: they need the same users and realm.
Clients over TCP, TLS and DTLS are not moved by it: their connections end with the old process.`,
		Example: `  weir turn export > allocations.json
  weir turn export --admin 192.0.2.1:9180 --admin-token-file token | weir turn import -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.Client()
			if err != nil {
				return err
			}
			moved, err := client.Export(cmd.Context())
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(append(moved, '\n'))
			return err
		},
	}
	flags.Add(cmd, cli.TurnPart())
	return cmd
}

func newTurnImportCommand() *cobra.Command {
	var flags cli.ClientFlags
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Take up the allocations that weir turn export wrote",
		Long: `Gives a running gateway the allocations of another one. Their relay addresses must be this host's by now and free, and
listeners must have the names and addresses they had. Allocations that cannot be imported are counted, and the
first reason is printed; the exit code is then 1.`,
		Example: `  weir turn import allocations.json
  weir turn import - < allocations.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := flags.Client()
			if err != nil {
				return err
			}
			return importFile(cmd, client, args[0], flags.AsJSON)
		},
	}
	flags.Add(cmd, cli.TurnPart())
	return cmd
}

func importFile(cmd *cobra.Command, gateway *client.Client, path string, asJSON bool) error {
	var source io.Reader = cmd.InOrStdin()
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return cli.UsageError(err)
		}
		defer file.Close()
		source = file
	}
	text, err := io.ReadAll(io.LimitReader(source, maxMoved+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	result, err := gateway.Import(cmd.Context(), bytes.NewReader(text))
	if err != nil {
		return err
	}
	if asJSON {
		err = cli.PrintJSON(cmd.OutOrStdout(), result)
	} else {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d allocations taken up, %d refused\n", result.Restored, result.Refused)
	}
	if err == nil && result.Refused > 0 {
		err = errors.New("the first refused: " + result.Why)
	}
	return err
}
