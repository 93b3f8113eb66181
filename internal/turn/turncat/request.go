package turncat

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/turn/requests"
)

const (
	headerBytes = requests.ChannelHeader
	maxData     = 65507 - headerBytes
)

// dataIndication returns the data of a Data indication from our peer (RFC 8656 section 11.4). A server sends these until it has
// received the ChannelBind.
func dataIndication(b []byte, peer netip.AddrPort) (data []byte, ok bool) {
	m := stun.Message{Raw: b}
	if err := m.Decode(); err != nil || m.Type != stun.NewType(stun.MethodData, stun.ClassIndication) {
		return nil, false
	}
	from, err := requests.Address(&m, stun.AttrXORPeerAddress)
	if err != nil || from != peer {
		return nil, false
	}
	data, err = m.Get(stun.AttrData)
	return data, err == nil
}

// Refusal is an error response of the TURN server.
type Refusal struct {
	Request string // Allocate, Refresh, ChannelBind
	Code    int    // RFC 8656 section 18
	Reason  string // the server's text, truncated
	User    string // the user name of the request, if any
}

func (r *Refusal) Error() string {
	text := fmt.Sprintf("the TURN server refused %s: %d %s", r.Request, r.Code, r.Reason)
	switch {
	case r.Credentials():
		text += fmt.Sprintf("; is %q the right user, and its password? (--user, --password, --credentials or --secret)", r.User)
	case r.Code == 401:
		text += "; it wants credentials in a form that it did not say"
	case r.Code == 403:
		text += "; the server does not let clients reach this peer"
	case r.Code == 440:
		text += "; the server has no relay address of the peer's family"
	case r.Code == 442:
		text += "; the server does not relay this protocol"
	case r.Code == 486:
		text += "; this user has as many allocations as it may"
	case r.Code == 508:
		text += "; the server has no relay port left"
	}
	return text
}

// Credentials reports whether the user or the password is wrong or has expired. Servers built on pion/turn then
// answer 400.
func (r *Refusal) Credentials() bool {
	return r.User != "" && (r.Code == 401 || r.Code == 441 || r.Code == 400)
}

func parseRefusal(m *stun.Message) *Refusal {
	r := &Refusal{Request: m.Type.Method.String()}
	r.Code, r.Reason = requests.ErrorCode(m)
	r.Reason = cmp.Or(r.Reason, "(no reason given)")
	return r
}
