package coap

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// exitCodes is what the help of every request says of them.
const exitCodes = "\n\nThe exit code is 0 for a response of class 2, 1 for an error response or none at all, 2 for wrong usage."

// newRequestCommands are a command for each method.
func newRequestCommands() []*cobra.Command {
	const secure = " over UDP (coap://), DTLS 1.2 (coaps://), TCP (coap+tcp://) or TLS (coaps+tcp://): with a pre-shared key, or with a\ncertificate or raw public key (--cert, --rpk, --trust)."
	return []*cobra.Command{
		newRequestCommand(message.GET, "get", "Get a resource: show request, session and response",
			`Send a GET`+secure+`

It fetches a long response in blocks, repeats the request with an Echo option that the server requests, and shows JSON, CBOR and
links for people.`,
			`  weir coap get coap://localhost:5783/context
  weir coap get coaps://localhost:5784/mycontext
  weir coap get coaps://localhost:5784/mycontext --identity Client_identity --secret secretPSK --accept json
  weir coap get coaps://device.example/sensors --cert me.pem --cert-key me.key --trust root.pem
  weir coap get coap://localhost:5783/large -o large.txt`),
		newRequestCommand(message.PUT, "put", "Put a resource: create or replace it",
			`Send a PUT`+secure+` A long payload goes in blocks.`,
			`  weir coap put coap://localhost:5683/test --payload hello
  weir coap put coap://localhost:5683/large-update --file firmware.bin --content-format octets --block-size 512
  weir coap put coap://localhost:5683/create1 --payload new --if-none-match`),
		newRequestCommand(message.POST, "post", "Post to a resource",
			`Send a POST`+secure+` A long payload goes in blocks.`,
			`  weir coap post "coaps://localhost:5784/benchmark?rlen=40" --payload hello --json
  date | weir coap post coap://localhost:5683/large-post --file - --content-format text`),
		newRequestCommand(message.DELETE, "delete", "Delete a resource", `Send a DELETE`+secure,
			`  weir coap delete coap://localhost:5683/test`),
		newRequestCommand(message.FETCH, "fetch", "Fetch the part of a resource that the payload describes (RFC 8132)", `Send a FETCH`+secure,
			`  weir coap fetch coap://localhost:5683/test --payload-hex 8101 --content-format cbor`),
		newRequestCommand(message.PATCH, "patch", "Change the part of a resource that the payload describes (RFC 8132)", `Send a PATCH`+secure,
			`  weir coap patch coap://localhost:5683/test --payload '{"a":1}' --content-format 52`),
		newRequestCommand(message.IPATCH, "ipatch", "Like patch, but twice is the same as once (RFC 8132)", `Send an iPATCH`+secure,
			`  weir coap ipatch coap://localhost:5683/test --payload '{"a":1}' --content-format 52`),
	}
}

func newRequestCommand(method message.Code, name, short, long, example string) *cobra.Command {
	var f requestFlags
	var save, other string
	var asJSON bool
	cmd := &cobra.Command{
		Use: name + " URI", Short: short, Long: long + exitCodes, Example: example, Args: cli.OneURI,
		RunE: func(cmd *cobra.Command, args []string) error {
			if other != "" {
				var ok bool
				if method, ok = message.ParseMethod(other); !ok {
					return cli.UsageError(fmt.Errorf("--method: %q is no CoAP method; use GET, POST, PUT, DELETE, FETCH, PATCH or IPATCH", other))
				}
			}
			if asJSON && save != "" {
				return cli.UsageError(errors.New("give --json or --output"))
			}
			return runRequest(cmd, method, args[0], &f, save, asJSON)
		},
	}
	f.add(cmd, method != message.DELETE)
	if method == message.GET {
		cmd.Flags().StringVar(&other, "method", "", "send another method: GET, POST, PUT, DELETE, FETCH, PATCH or IPATCH; each has a command of its own")
	}
	cmd.Flags().StringVarP(&save, "output", "o", "", "write the payload of the response to this file, or with - to standard output, and show nothing else")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func runRequest(cmd *cobra.Command, method message.Code, uri string, f *requestFlags, save string, asJSON bool) error {
	cfg, err := f.request(cmd, method, uri)
	if err != nil {
		return cli.UsageError(err)
	}
	exchange, err := client.Do(cmd.Context(), cfg)
	if asJSON {
		if err != nil {
			return err
		}
		return printExchangeJSON(cmd.OutOrStdout(), exchange)
	}
	if save != "" && err == nil {
		m, failed := responseCode(exchange)
		if failed == nil {
			return writeOutput(cmd, save, m.Payload)
		}
	}
	if len(exchange.Request) > 0 {
		if printing := exchange.Print(cmd.OutOrStdout()); printing != nil {
			return errors.Join(err, printing)
		}
	}
	if err != nil {
		return err
	}
	_, err = responseCode(exchange)
	return err
}

// responseCode returns the result of the response. An error response becomes an error without a text, because the response
// has been shown already.
func responseCode(x *client.Exchange) (message.Message, error) {
	var m message.Message
	if x.Response == nil { // none was wanted
		return m, nil
	}
	if err := message.Parse(x.Response, &m); err != nil {
		return m, err
	}
	if m.Code.Class() != 2 {
		return m, &cli.ExitError{Code: cli.ExitFailure}
	}
	return m, nil
}

// exchangeJSON is the JSON form of an exchange.
func exchangeJSON(x *client.Exchange, m *message.Message) v1.CoAPExchange {
	out := v1.CoAPExchange{
		Code: m.Code.String(), Name: m.Code.Name(), Type: m.Type.String(), MID: m.ID, Token: strings.ToUpper(hex.EncodeToString(m.Token)),
		Options: client.Options(m), Payload: client.PayloadText(m), PayloadHex: hex.EncodeToString(m.Payload),
		RTT: measure.Millis(x.RTT), Elapsed: measure.Millis(x.Elapsed), Retransmissions: x.Retransmissions, Messages: x.Messages,
	}
	if s := &x.Session; s.Suite != "" {
		out.Session = &v1.CoAPSession{
			Suite: s.Suite, Auth: s.Auth.String(), Identity: s.Identity, ID: s.ID, ConnectionID: s.HasCID, ReadCID: s.ReadCID, WriteCID: s.WriteCID, Resumed: s.Resumed,
		}
	}
	return out
}

func printExchangeJSON(w io.Writer, x *client.Exchange) error {
	m, failed := responseCode(x)
	var exit *cli.ExitError
	if failed != nil && !errors.As(failed, &exit) {
		return failed
	}
	return errors.Join(json.NewEncoder(w).Encode(exchangeJSON(x, &m)), failed)
}
