package coap

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/browse"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

func newBrowseCommand() *cobra.Command {
	var f requestFlags
	cmd := &cobra.Command{
		Use:   "browse URI",
		Short: "Browse the resources of a server on the whole terminal",
		Long: `List the resources of a server on the whole terminal, request, observe, change and delete them, and show what they hold, over UDP,
DTLS, TCP or TLS. The key ? lists the keys.`,
		Example: `  weir coap browse coap://localhost:5783
  weir coap browse coaps://localhost:5784 --identity Client_identity --secret secretPSK`,
		Args: cli.OneURI,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := f.request(cmd, message.GET, args[0])
			if err != nil {
				return cli.UsageError(err)
			}
			err = browse.Run(cmd.Context(), args[0], client.DialConfig{Security: cfg.Security, AckTimeout: cfg.AckTimeout, Timeout: cfg.Timeout})
			if errors.Is(err, browse.ErrNoTerminal) {
				return cli.UsageError(err)
			}
			return err
		},
	}
	f.add(cmd, false)
	return cmd
}
