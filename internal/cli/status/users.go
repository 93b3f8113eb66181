package status

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
)

// Users writes `weir turn users`: allocations, with rates since the list before.
type Users struct {
	lastAt int64
	last   map[uint64]v1.TurnUser
}

func (t *Users) remember(list *v1.TurnUserList) {
	t.lastAt, t.last = list.At, map[uint64]v1.TurnUser{}
	for _, u := range list.Users {
		t.last[u.ID] = u
	}
}

// Write writes the allocations of a list, and how many there are.
func (t *Users) Write(w io.Writer, list *v1.TurnUserList) error {
	defer t.remember(list)
	table := terminal.NewTable(w, false)
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
	_, err := fmt.Fprintf(w, "%s%s\n", terminal.Quantity(list.Total, "allocation"), more)
	return err
}

// rate is bits per second since the previous table, or over the life of the allocation.
func (t *Users) rate(at int64, u *v1.TurnUser) string {
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

func (*Users) lastReceived(at int64, u *v1.TurnUser) string {
	last := max(u.LastUp, u.LastDown)
	if last == 0 {
		return "never"
	}
	return seconds(at-last) + " ago"
}

// bytesOf is what an allocation has relayed, both ways.
func bytesOf(u *v1.TurnUser) uint64 { return u.Up.Bytes + u.Down.Bytes }

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
