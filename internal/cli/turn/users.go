package turn

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/terminal"
)

func newTurnUsersCommand() *cobra.Command {
	var flags cli.ClientFlags
	var watch bool
	var every time.Duration
	var query client.UserQuery
	cmd := &cobra.Command{
		Use:   "users",
		Short: "List the allocations of a running gateway: which client relays what to which peer",
		Long: `List the allocations of a running gateway: user, client, relay address, peers, traffic each way, and how long ago the
last packet passed. Rates are of the time between two tables with --watch, else of the allocation's whole life.`,
		Example: `  weir turn users
  weir turn users --watch --sort bytes --limit 20
  weir turn users --client 192.0.2.0/24 --json | jq -r '.users[].relay[]'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.Client()
			if err != nil {
				return err
			}
			if every < 100*time.Millisecond {
				return cli.UsageError(fmt.Errorf("--every %s: write 100ms or more", every))
			}
			if query.Limit == 0 { // the gateway would take its default
				return cli.UsageError(fmt.Errorf("--limit \"0\": write 1 to %d", v1.MaxTurnUsers))
			}
			if _, err := parseTurnQuestion(query.Values()); err != nil {
				return cli.UsageError(fmt.Errorf("--%w", err))
			}
			table := turnTable{client: client, query: query, out: cmd.OutOrStdout(), json: flags.AsJSON}
			if watch {
				table.lines = true
				return cli.Watch(cmd.Context(), &table.out, table.json, every, table.once)
			}
			return table.once(cmd.Context())
		},
	}
	for _, f := range []struct {
		value      *string
		key, usage string
	}{
		{&query.User, "user", "only this user's"},
		{&query.Listener, "listener", "only of this listener"},
		{&query.Transport, "transport", "only udp, tcp, tls or dtls"},
		{&query.Client, "client", "only clients with this address or in this prefix"},
		{&query.Sort, "sort", "order by bytes, age, expires, idle, user or client, before the limit cuts (default age, the oldest first)"},
	} {
		cmd.Flags().StringVar(f.value, f.key, "", f.usage)
	}
	cmd.Flags().IntVar(&query.Limit, "limit", 1000, fmt.Sprintf("at most so many, up to %d", v1.MaxTurnUsers))
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "again and again, until interrupted")
	cli.DurationVar(cmd.Flags(), &every, "every", time.Second, "how often with --watch")
	flags.Add(cmd, cli.TurnPart())
	cli.CompleteFlag(cmd, "user", userNames(&flags, func(u *v1.TurnUser) string { return u.User }))
	cli.CompleteFlag(cmd, "listener", userNames(&flags, func(u *v1.TurnUser) string { return u.Listener }))
	return cmd
}

// turnTable queries the users and prints them.
type turnTable struct {
	client *client.Client
	query  client.UserQuery
	out    io.Writer
	json   bool
	lines  bool // JSON on one line each time

	lastAt int64
	last   map[uint64]v1.TurnUser
}

func (t *turnTable) once(ctx context.Context) error {
	list, err := t.client.Users(ctx, t.query)
	if err != nil {
		return err
	}
	switch {
	case t.json && t.lines:
		return json.NewEncoder(t.out).Encode(list)
	case t.json:
		return cli.PrintJSON(t.out, list)
	}
	err = t.print(list)
	t.lastAt, t.last = list.At, map[uint64]v1.TurnUser{}
	for _, u := range list.Users {
		t.last[u.ID] = u
	}
	return err
}

func (t *turnTable) print(list *v1.TurnUserList) error {
	table := terminal.NewTable(t.out, false)
	fmt.Fprintln(table, "USER\tCLIENT\tVIA\tRELAY\tPEERS\tCHANNELS\tAGE\tEXPIRES\tUP\tDOWN\tRATE\tLAST")
	for i := range list.Users {
		u := &list.Users[i]
		channels := strconv.Itoa(u.Channels)
		if u.Offloaded > 0 {
			channels += fmt.Sprintf(" (%d in kernel)", u.Offloaded)
		}
		fmt.Fprintf(table, "%s\t%s\t%s %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", u.User, u.Client, u.Listener, u.Transport,
			relayList(u), addressList(u.Peers, 2), channels, seconds(list.At-u.Created), seconds(u.Expires-list.At),
			byteText(float64(u.Up.Bytes)), byteText(float64(u.Down.Bytes)), t.rate(list.At, u), t.lastReceived(list.At, u))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	more := ""
	if len(list.Users) < list.Total {
		more = fmt.Sprintf(", %d shown; raise --limit or filter", len(list.Users))
	}
	_, err := fmt.Fprintf(t.out, "%s%s\n", terminal.Quantity(list.Total, "allocation"), more)
	return err
}

// rate is bits per second since the previous table, or over the life of the allocation.
func (t *turnTable) rate(at int64, u *v1.TurnUser) string {
	since, before := u.Created, uint64(0)
	if last, ok := t.last[u.ID]; ok {
		since, before = t.lastAt, bytesOf(&last)
	}
	passed := time.Duration(at - since).Seconds()
	if passed <= 0 || bytesOf(u) < before {
		return "-"
	}
	return siText(float64(bytesOf(u)-before)*8/passed) + "bit/s"
}

func (*turnTable) lastReceived(at int64, u *v1.TurnUser) string {
	last := max(u.LastUp, u.LastDown)
	if last == 0 {
		return "never"
	}
	return seconds(at-last) + " ago"
}

// relayList is the relay addresses, and the addresses that clients received instead.
func relayList(u *v1.TurnUser) string {
	if len(u.RelayPublic) == 0 {
		return addressList(u.Relay, 2)
	}
	return addressList(u.Relay, 2) + " as " + addressList(u.RelayPublic, 2)
}

func addressList(addresses []netip.AddrPort, maximum int) string {
	var texts []string
	for i, a := range addresses {
		if i == maximum {
			texts = append(texts, fmt.Sprintf("+%d", len(addresses)-maximum))
			break
		}
		texts = append(texts, a.String())
	}
	if texts == nil {
		return "-"
	}
	return strings.Join(texts, " ")
}

func seconds(nanoseconds int64) string {
	return time.Duration(max(nanoseconds, 0)).Round(time.Second).String()
}

func byteText(n float64) string { return siText(n) + "B" }

// siText is a number with three digits and a decimal prefix: 1.25 M.
func siText(n float64) string {
	for _, prefix := range []string{"", "k", "M", "G"} {
		if n < 999.5 {
			if prefix == "" {
				return fmt.Sprintf("%.0f ", n)
			}
			return fmt.Sprintf("%.3g %s", n, prefix)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.3g T", n)
}
