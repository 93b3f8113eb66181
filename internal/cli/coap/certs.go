package coap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/dtls/credentials"
	"github.com/weir-lb/weir/internal/terminal"
)

// coapCertsFlags are the flags of `weir coap certs`.
type coapCertsFlags struct {
	hosts []string
	force bool
	json  bool
}

func newCoapCertsCommand() *cobra.Command {
	var f coapCertsFlags
	cmd := &cobra.Command{
		Use:   "certs [DIRECTORY]",
		Short: "Make certificates and raw public keys of a server and a client, for tests",
		Long: `Make a root certificate, an authority below it, and certificates on P-256 for a server and a client, with their raw public keys.
They never expire. The keys of root and authority are not written, so no one can sign further certificates with them.

A server takes server.pem and server-key.pem and trusts trust-client.pem; a client takes client.pem and client-key.pem and trusts
trust-server.pem. For raw public keys, leave out the certificate.`,
		Example: `  weir coap certs demo
  weir coap certs demo --host coap.example.org,192.0.2.1
  weir coap server --certificate demo/server.pem --private-key demo/server-key.pem --trust demo/trust-client.pem --client-auth wanted`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			directory := "."
			if len(args) > 0 {
				directory = args[0]
			}
			return runCoapCerts(cmd, &f, directory)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.hosts, "host", []string{"localhost", "127.0.0.1", "::1"}, "names and addresses of the server")
	flags.BoolVar(&f.force, "force", false, "replace files that exist")
	flags.BoolVar(&f.json, "json", false, "print what was written as JSON")
	return cmd
}

// certFile is one line of the output.
type certFile struct {
	Path string `json:"path"`
	What string `json:"what"`
}

func runCoapCerts(cmd *cobra.Command, f *coapCertsFlags, directory string) error {
	files, err := credentials.Demo(f.hosts)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	if !f.force {
		for _, file := range files {
			if _, err := os.Lstat(filepath.Join(directory, file.Name)); err == nil {
				return cli.UsageError(fmt.Errorf("%s exists; name another directory, or replace what is there with --force", filepath.Join(directory, file.Name)))
			}
		}
	}
	var written []certFile
	for _, file := range files {
		path := filepath.Join(directory, file.Name)
		if err := writeCert(path, file); err != nil {
			return err
		}
		written = append(written, certFile{path, file.What})
	}
	if f.json {
		return cli.PrintJSON(cmd.OutOrStdout(), written)
	}
	table := terminal.NewTable(cmd.OutOrStdout(), false)
	for _, w := range written {
		fmt.Fprintf(table, "%s\t%s\n", w.Path, w.What)
	}
	return table.Flush()
}

// writeCert writes a file again: a private key is never readable by others, not even for a moment.
func writeCert(path string, file credentials.File) error {
	mode := fs.FileMode(0o644)
	if file.Secret {
		mode = 0o600
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = out.Write(file.Content)
	return errors.Join(err, out.Close())
}
