package coap

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// coapGetFlags are the flags of `weir coap get`.
type coapGetFlags struct {
	method, payload, format, accept string
	non, noCID, json                bool
	identity, secret, secretHex     string
	cidLength                       int
	timeout, ackTimeout             time.Duration
}

func newCoapGetCommand() *cobra.Command {
	var f coapGetFlags
	cmd := &cobra.Command{
		Use:   "get URI",
		Short: "Send one CoAP request and show request, session and response",
		Long: `Send one CoAP request over UDP (coap://) or DTLS 1.2 with a pre-shared key (coaps://), and show request, session and response.

The DTLS client is pion/dtls, not Weir's own. It offers a connection id of length zero: the server may choose one for itself.
The exit code is 0 for a response of class 2, 1 for an error response or none at all.`,
		Example: `  weir coap get coap://localhost:5783/context
  weir coap get coaps://localhost:5784/mycontext
  weir coap get coaps://localhost:5784/mycontext --identity Client_identity --secret secretPSK --accept json
  weir coap get "coaps://localhost:5784/benchmark?rlen=40" --method POST --payload hello --json`,
		Args: cli.OneURI,
		RunE: func(cmd *cobra.Command, args []string) error { return runCoapGet(cmd, args[0], &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.method, "method", "GET", "GET, POST, PUT, DELETE, FETCH, PATCH or IPATCH")
	flags.StringVar(&f.payload, "payload", "", "text to send")
	flags.StringVar(&f.format, "content-format", "", "format of the payload: text, json, xml, cbor, octets, link or a number")
	flags.StringVar(&f.accept, "accept", "", "format asked for: text, json, xml, cbor, octets, link or a number")
	flags.BoolVar(&f.non, "non", false, "non-confirmable request")
	flags.BoolVar(&f.noCID, "no-cid", false, "do not offer a connection id")
	flags.IntVar(&f.cidLength, "cid-length", 0, "bytes of this client's own connection id")
	flags.StringVar(&f.identity, "identity", "", "PSK identity (default cali. and 16 random hex digits)")
	flags.StringVar(&f.secret, "secret", client.DefaultSecret, "PSK as text")
	flags.StringVar(&f.secretHex, "secret-hex", "", "PSK in hex, instead of --secret")
	cli.DurationVar(flags, &f.timeout, "timeout", 30*time.Second, "limit for the handshake, and for the exchange")
	cli.DurationVar(flags, &f.ackTimeout, "ack-timeout", 2*time.Second, "first retransmission, at least (RFC 7252 ACK_TIMEOUT)")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

// pskSecret reads a secret given as text or as hex.
func pskSecret(text, inHex string) ([]byte, error) {
	if inHex == "" {
		return []byte(text), nil
	}
	secret, err := hex.DecodeString(inHex)
	if err != nil {
		return nil, fmt.Errorf("--secret-hex: %w; write an even number of digits 0-9 a-f", err)
	}
	return secret, nil
}

func contentFormat(flag, value string) (*message.Format, error) {
	if value == "" {
		return nil, nil
	}
	for name, format := range map[string]message.Format{
		"text": message.Text, "link": message.LinkFormat, "xml": message.XML, "octets": message.OctetStream, "json": message.JSON, "cbor": message.CBOR,
	} {
		if name == value {
			return &format, nil
		}
	}
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("--%s: %q is no content format; use text, json, xml, cbor, octets, link or a number up to 65535", flag, value)
	}
	format := message.Format(n)
	return &format, nil
}

func runCoapGet(cmd *cobra.Command, uri string, f *coapGetFlags) error {
	if _, err := client.ParseTarget(uri); err != nil {
		return cli.UsageError(err)
	}
	method, ok := message.ParseMethod(f.method)
	if !ok {
		return cli.UsageError(fmt.Errorf("--method: %q is no CoAP method; use GET, POST, PUT, DELETE, FETCH, PATCH or IPATCH", f.method))
	}
	secret, err := pskSecret(f.secret, f.secretHex)
	format, err2 := contentFormat("content-format", f.format)
	accept, err3 := contentFormat("accept", f.accept)
	if err := errors.Join(err, err2, err3); err != nil {
		return cli.UsageError(err)
	}
	if f.cidLength < 0 || f.cidLength > 32 {
		return cli.UsageError(fmt.Errorf("--cid-length: %d is not between 0 and 32", f.cidLength))
	}
	exchange, err := client.Request(cmd.Context(), client.RequestConfig{
		URI: uri, Method: method, NON: f.non, Payload: []byte(f.payload), ContentFormat: format, Accept: accept,
		Identity: f.identity, Secret: secret, CIDLength: f.cidLength, NoCID: f.noCID, AckTimeout: f.ackTimeout, Timeout: f.timeout,
	})
	if f.json {
		if err != nil {
			return err
		}
		return printExchangeJSON(cmd.OutOrStdout(), &exchange)
	}
	if len(exchange.Request) > 0 {
		if printing := exchange.Print(cmd.OutOrStdout()); printing != nil {
			return errors.Join(err, printing)
		}
	}
	if err != nil {
		return err
	}
	_, err = responseCode(&exchange)
	return err
}

// responseCode returns the result of the response. An error response becomes an error without a text, because the response
// has been shown already.
func responseCode(x *client.Exchange) (message.Message, error) {
	var m message.Message
	if err := message.Parse(x.Response, &m); err != nil {
		return m, err
	}
	if m.Code.Class() != 2 {
		return m, &cli.ExitError{Code: cli.ExitFailure}
	}
	return m, nil
}

func printExchangeJSON(w io.Writer, x *client.Exchange) error {
	m, failed := responseCode(x)
	var exit *cli.ExitError
	if failed != nil && !errors.As(failed, &exit) {
		return failed
	}
	out := v1.CoAPExchange{
		Code: m.Code.String(), Name: m.Code.Name(), Type: m.Type.String(), MID: m.ID, Token: strings.ToUpper(hex.EncodeToString(m.Token)),
		Options: client.Options(&m), Payload: client.PayloadText(&m), PayloadHex: hex.EncodeToString(m.Payload),
		RTT: measure.Millis(x.RTT), Elapsed: measure.Millis(x.Elapsed), Retransmissions: x.Retransmissions,
	}
	if x.Session.Suite != "" {
		out.Session = &v1.CoAPSession{Suite: x.Session.Suite, Identity: x.Session.Identity, ID: x.Session.ID}
	}
	return errors.Join(json.NewEncoder(w).Encode(out), failed)
}
