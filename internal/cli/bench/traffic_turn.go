package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/turn/load"
)

// newBenchTrafficTurnCommand is the generator and sink of `weir turn bench`: phases come as JSON lines at standard input, a
// report leaves as one line for each, and the end of the input ends it.
func newBenchTrafficTurnCommand() *cobra.Command {
	var (
		config                     load.Config
		server, sink, peer, source string
		to                         []string
		namespace                  string
	)
	cmd := &cobra.Command{
		Use: "turn", Short: "Send through a TURN server, or plain UDP, and count what arrives", Hidden: true, Args: cobra.NoArgs,
		Example: `  echo '{"rate":1000,"duration_ns":1000000000,"direction":"up"}' |
    weir bench traffic turn --server 127.0.0.1:3478 --user user1 --password passwd1 --clients 5 --size 64`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			for _, p := range []struct {
				flag, text string
				into       *netip.AddrPort
			}{{"server", server, &config.Server}, {"sink", sink, &config.Sink}, {"peer", peer, &config.Peer}} {
				if p.text == "" {
					continue
				}
				if *p.into, err = netip.ParseAddrPort(p.text); err != nil {
					return cli.UsageError(fmt.Errorf("--%s: %w", p.flag, err))
				}
			}
			for _, text := range to {
				at, err := netip.ParseAddrPort(text)
				if err != nil {
					return cli.UsageError(fmt.Errorf("--to: %w", err))
				}
				config.To = append(config.To, at)
			}
			if source != "" {
				if config.Source, err = netip.ParseAddr(source); err != nil {
					return cli.UsageError(fmt.Errorf("--source: %w", err))
				}
			}
			if namespace != "" {
				config.SinkIn = func(open func() error) error { return inNamespace(namespace, open) }
			}
			return runBenchTrafficTurn(cmd, config)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&server, "server", "", "TURN server; none: plain UDP")
	flags.BoolVar(&config.Stream, "tcp", false, "use TCP to the TURN server")
	flags.BoolVar(&config.DTLS, "dtls", false, "use DTLS to the TURN server, and trust its certificate")
	flags.StringVar(&config.User, "user", "", "long-term credential")
	flags.StringVar(&config.Password, "password", "", "long-term credential")
	flags.StringSliceVar(&to, "to", nil, "plain UDP: where client i sends, in turns (default the sink)")
	flags.StringVar(&sink, "sink", "", "where to receive (default 127.0.0.1 and any port)")
	flags.StringVar(&peer, "peer", "", "an echo elsewhere, in place of a sink")
	flags.StringVar(&namespace, "sink-netns", "", "network namespace to receive in, by its name or path")
	flags.StringVar(&source, "source", "", "address of the clients")
	flags.IntVar(&config.Clients, "clients", 1, "how many")
	flags.IntVar(&config.Size, "size", 1200, "bytes of user data")
	flags.IntVar(&config.Burst, "burst", 8, "datagrams that a client sends in a row")
	flags.BoolVar(&config.NoSegment, "no-segment", false, "send every datagram by itself")
	flags.BoolVar(&config.NoCoalesce, "no-coalesce", false, "receive every datagram by itself")
	return cmd
}

func runBenchTrafficTurn(cmd *cobra.Command, config load.Config) (err error) {
	l, err := load.Open(cmd.Context(), config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	out := json.NewEncoder(cmd.OutOrStdout())
	if err := out.Encode(map[string]any{"sink": l.Sink(), "relays": l.Relays()}); err != nil {
		return err
	}
	lines := bufio.NewScanner(cmd.InOrStdin())
	for lines.Scan() && cmd.Context().Err() == nil {
		var phase load.Phase
		if err := json.Unmarshal(lines.Bytes(), &phase); err != nil {
			return cli.UsageError(fmt.Errorf("phase %q: %w", lines.Text(), err))
		}
		report, err := l.Run(cmd.Context(), phase)
		if err != nil {
			return err
		}
		if err := out.Encode(report); err != nil {
			return err
		}
	}
	return lines.Err()
}

// inNamespace calls f on a thread in a network namespace: the sockets that it opens stay there.
func inNamespace(name string, f func() error) error {
	if !strings.Contains(name, "/") {
		name = "/run/netns/" + name
	}
	errs := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine, and its namespace with it
		file, err := os.Open(name)
		if err == nil {
			defer file.Close()
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		} else {
			err = fmt.Errorf("enter network namespace %s: %w", name, err)
		}
		errs <- err
	}()
	return <-errs
}
