package coap

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/readfile"
)

// maxPayload bounds a payload that is read from a file or standard input, in bytes.
const maxPayload = 16 << 20

// requestFlags are the flags of every request.
type requestFlags struct {
	securityFlags
	payload, payloadHex, file string
	format, accept            string
	ifMatch, etag, options    []string
	ifNoneMatch               bool
	noResponse                []string
	non                       bool
	blockSize                 int
	timeout, ackTimeout       time.Duration
}

// add adds the flags; body: of a payload too.
func (f *requestFlags) add(cmd *cobra.Command, body bool) {
	flags := cmd.Flags()
	if body {
		flags.StringVar(&f.payload, "payload", "", "text to send")
		flags.StringVar(&f.payloadHex, "payload-hex", "", "bytes to send, in hex")
		flags.StringVar(&f.file, "file", "", "file to send; - for standard input")
		flags.StringVar(&f.format, "content-format", "", "format of the payload: text, json, xml, cbor, octets, link or a number")
	}
	flags.StringVar(&f.accept, "accept", "", "format requested: text, json, xml, cbor, octets, link or a number")
	flags.StringArrayVar(&f.ifMatch, "if-match", nil, `only if the resource has this ETag, in hex, or, with "", exists; may be repeated`)
	flags.BoolVar(&f.ifNoneMatch, "if-none-match", false, "only if the resource does not exist")
	flags.StringArrayVar(&f.etag, "etag", nil, "ETag in hex of a response already known, which 2.03 may confirm; may be repeated")
	flags.StringArrayVar(&f.options, "option", nil, "any other option, as NUMBER=TEXT, NUMBER=0xHEX; may be repeated")
	flags.StringSliceVar(&f.noResponse, "no-response", nil, "classes of responses that are not wanted: 2, 4, 5 (RFC 7967)")
	flags.IntVar(&f.blockSize, "block-size", 0, "bytes of a block, 16 to 1024, over TCP also a multiple of 1024 (BERT): of the payload (default 1024, over TCP as much as the server takes), and requested in the response (default the server's choice)")
	flags.BoolVar(&f.non, "non", false, "non-confirmable request")
	cli.DurationVar(flags, &f.timeout, "timeout", 30*time.Second, "limit for the handshake, and for each exchange")
	cli.DurationVar(flags, &f.ackTimeout, "ack-timeout", 2*time.Second, "first retransmission, at least (RFC 7252 ACK_TIMEOUT)")
	f.securityFlags.add(flags)
}

// request is what the flags say.
func (f *requestFlags) request(cmd *cobra.Command, method message.Code, uri string) (client.RequestConfig, error) {
	cfg := client.RequestConfig{
		URI: uri, AckTimeout: f.ackTimeout, Timeout: f.timeout, Request: client.Request{Method: method, NON: f.non, BlockSize: f.blockSize},
	}
	if _, err := client.ParseTarget(uri); err != nil {
		return cfg, err
	}
	var err error
	if cfg.Security, err = f.security(); err != nil {
		return cfg, err
	}
	if cfg.Payload, err = f.body(cmd); err != nil {
		return cfg, err
	}
	if cfg.Options, err = f.list(); err != nil {
		return cfg, err
	}
	return cfg, cfg.Validate()
}

// body reads the payload.
func (f *requestFlags) body(cmd *cobra.Command) ([]byte, error) {
	given := 0
	for _, name := range []string{"payload", "payload-hex", "file"} {
		if cmd.Flags().Changed(name) {
			given++
		}
	}
	if given > 1 {
		return nil, errors.New("give one of --payload, --payload-hex and --file")
	}
	switch {
	case f.payloadHex != "":
		b, err := hex.DecodeString(f.payloadHex)
		if err != nil {
			return nil, fmt.Errorf("--payload-hex: %w; write an even number of digits 0-9 a-f", err)
		}
		return b, nil
	case f.file == "-":
		b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxPayload+1))
		if err == nil && len(b) > maxPayload {
			err = fmt.Errorf("standard input: more than %d bytes", maxPayload)
		}
		return b, err
	case f.file != "":
		return readfile.Read(f.file, maxPayload)
	}
	return []byte(f.payload), nil
}

// list returns the options that the flags add.
func (f *requestFlags) list() (list []client.Option, err error) {
	for _, flag := range []struct {
		name, value string
		id          message.OptionID
	}{{"content-format", f.format, message.ContentFormat}, {"accept", f.accept, message.Accept}} {
		format, err := contentFormat(flag.name, flag.value)
		if err != nil {
			return nil, err
		}
		if format != nil {
			list = append(list, client.UintOption(flag.id, uint32(*format)))
		}
	}
	for _, flag := range []struct {
		name   string
		values []string
		id     message.OptionID
		min    int
	}{{"if-match", f.ifMatch, message.IfMatch, 0}, {"etag", f.etag, message.ETag, 1}} {
		for _, text := range flag.values {
			value, err := hex.DecodeString(strings.TrimPrefix(text, "0x"))
			if err != nil || len(value) < flag.min || len(value) > 8 {
				return nil, fmt.Errorf("--%s: %q is no ETag; write %d to 8 bytes in hex", flag.name, text, flag.min)
			}
			list = append(list, client.Option{ID: flag.id, Value: value})
		}
	}
	if f.ifNoneMatch {
		list = append(list, client.Option{ID: message.IfNoneMatch})
	}
	if list, err = f.unwanted(list); err != nil {
		return nil, err
	}
	for _, text := range f.options {
		option, err := anyOption(text)
		if err != nil {
			return nil, err
		}
		list = append(list, option)
	}
	return list, nil
}

// unwanted adds the No-Response option.
func (f *requestFlags) unwanted(list []client.Option) ([]client.Option, error) {
	mask := uint32(0)
	for _, class := range f.noResponse {
		n, err := strconv.ParseUint(class, 10, 8)
		if err != nil || n != 2 && n != 4 && n != 5 {
			return nil, fmt.Errorf("--no-response: %q is no class of responses; use 2, 4 and 5", class)
		}
		mask |= 1 << (n - 1)
	}
	if mask != 0 {
		list = append(list, client.UintOption(message.NoResponse, mask))
	}
	return list, nil
}

// anyOption reads an option as NUMBER=TEXT or NUMBER=0xHEX.
func anyOption(text string) (client.Option, error) {
	number, value, found := strings.Cut(text, "=")
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || !found || n == 0 {
		return client.Option{}, fmt.Errorf("--option: %q; write the number of the option, =, and a text or 0x and hex digits, such as 65001=0x01", text)
	}
	o := client.Option{ID: message.OptionID(n), Value: []byte(value)}
	if digits, isHex := strings.CutPrefix(value, "0x"); isHex {
		if o.Value, err = hex.DecodeString(digits); err != nil {
			return o, fmt.Errorf("--option: %w in %q; write an even number of digits 0-9 a-f", err, text)
		}
	}
	switch o.ID {
	case message.URIHost, message.URIPath, message.URIQuery, message.Block1, message.Block2, message.Size1, message.RequestTag, message.Observe, message.Echo:
		return o, fmt.Errorf("--option: %s is made from the URI or by the client itself", o.ID)
	}
	return o, nil
}

// formatNames are the content formats that flags name.
var formatNames = []struct {
	name   string
	format message.Format
}{
	{"text", message.Text}, {"json", message.JSON}, {"xml", message.XML}, {"cbor", message.CBOR}, {"octets", message.OctetStream}, {"link", message.LinkFormat},
}

func contentFormat(flag, value string) (*message.Format, error) {
	if value == "" {
		return nil, nil
	}
	for _, f := range formatNames {
		if f.name == value {
			return &f.format, nil
		}
	}
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("--%s: %q is no content format; use text, json, xml, cbor, octets, link or a number up to 65535", flag, value)
	}
	format := message.Format(n)
	return &format, nil
}

// writeOutput writes a payload to a file, or with "-" to standard output.
func writeOutput(cmd *cobra.Command, path string, payload []byte) error {
	if path == "-" {
		_, err := cmd.OutOrStdout().Write(payload)
		return err
	}
	return os.WriteFile(path, payload, 0o666)
}
