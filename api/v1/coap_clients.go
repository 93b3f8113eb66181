package v1

import "time"

// CoAPExchange is the output of `weir coap get --json` and of the other requests.
type CoAPExchange struct {
	Code            string       `json:"code"`              // of the response, such as 2.05; 0.00: there is none, as the No-Response option requires
	Name            string       `json:"name"`              // of the code, such as CONTENT
	Type            string       `json:"type"`              // CON, NON, ACK or RST
	MID             uint16       `json:"mid"`               // message id
	Token           string       `json:"token"`             // in hexadecimal
	Options         string       `json:"options"`           // for people
	Payload         string       `json:"payload"`           // as text, for people
	PayloadHex      string       `json:"payload_hex"`       // in hexadecimal
	RTT             float64      `json:"rtt_ms"`            // milliseconds from the first transmission to the whole response, without handshake
	Elapsed         float64      `json:"elapsed_ms"`        // milliseconds of the whole exchange, with handshake
	Retransmissions int          `json:"retransmissions"`   // of requests
	Messages        int          `json:"messages"`          // requests sent, without retransmissions: more than one for blocks and for an Echo option
	Session         *CoAPSession `json:"session,omitempty"` // absent: without DTLS
}

// CoAPSession is the DTLS session of an exchange.
type CoAPSession struct {
	Suite        string `json:"suite"`         // cipher suite, IANA name
	Auth         string `json:"auth"`          // psk, x509 or rpk: how server or client has proven who it is
	Identity     string `json:"identity"`      // of the pre-shared key, or the subject or key hash of the server's certificate
	ID           uint32 `json:"id"`            // names the session in what is printed; drawn at random
	ConnectionID bool   `json:"connection_id"` // connection ids were negotiated
	ReadCID      string `json:"read_cid"`      // connection id that the client receives with, in hexadecimal; empty: of length 0, or none
	WriteCID     string `json:"write_cid"`     // the one of the server, likewise
	Resumed      bool   `json:"resumed"`       // of an earlier session
}

// CoAPNotification is a line of the output of `weir coap observe --json`.
type CoAPNotification struct {
	Number        int          `json:"number"`        // of the notifications shown, from 1, which is the answer to the registration
	Time          time.Time    `json:"time"`          // when it came
	Sequence      uint32       `json:"sequence"`      // value of the Observe option
	Registrations int          `json:"registrations"` // so far
	Stale         uint64       `json:"stale"`         // notifications left out so far because a newer one was there
	Exchange      CoAPExchange `json:"exchange"`      // the notification
}

// CoAPPing is the output of `weir coap ping --json`.
type CoAPPing struct {
	URI  string    `json:"uri"`    // of the server
	Sent int       `json:"sent"`   // pings, without retransmissions
	RTT  []float64 `json:"rtt_ms"` // milliseconds of those that were answered, in their order
}

// CoAPLink is one element of the list that `weir coap discover --json` prints.
type CoAPLink struct {
	Target     string   `json:"target"`          // path or URI
	Types      []string `json:"types"`           // rt
	Interfaces []string `json:"interfaces"`      // if
	Formats    []int    `json:"formats"`         // ct: content formats
	Size       uint64   `json:"size,omitempty"`  // sz: bytes; absent: not given
	Title      string   `json:"title,omitempty"` // absent: none
	Observable bool     `json:"observable"`      // obs
	Link       string   `json:"link"`            // as in the document, with every attribute
}

// CoAPServerLinks is one element of the list that `weir coap discover --json` prints for a multicast group: a server that answered.
type CoAPServerLinks struct {
	Source string     `json:"source"`          // address and port
	After  float64    `json:"after_ms"`        // milliseconds from the request to its first answer
	Links  []CoAPLink `json:"links"`           // empty with an error
	Error  string     `json:"error,omitempty"` // why its list is not known; absent: it is
}

// CoAPReceive is the output of `weir coap receive --json`.
type CoAPReceive struct {
	URI            string            `json:"uri"`             // of the resource
	Device         string            `json:"device"`          // names this client at the server
	Totals         CoAPReceiveCounts `json:"totals"`          // since the test began, over all its runs
	Open           int               `json:"open"`            // requests whose fate is not known yet
	ServerRestarts uint64            `json:"server_restarts"` // seen by the client
	AddressChanges uint64            `json:"address_changes"` // of the client, as the server has seen it
	Part           float64           `json:"part_s"`          // seconds of a part of the history
	History        []CoAPReceivePart `json:"history"`         // the oldest first, without parts in which nothing was sent
}

// CoAPReceiveCounts count requests of a receive test.
type CoAPReceiveCounts struct {
	Sent          uint64 `json:"sent"`           // requests
	Answered      uint64 `json:"answered"`       // in time
	LostRequests  uint64 `json:"lost_requests"`  // that the server never got
	LostResponses uint64 `json:"lost_responses"` // to requests that the server got
	Unknown       uint64 `json:"unknown"`        // without a response, and the server's history does not show which was lost
}

// CoAPReceivePart is a part of the history of a receive test.
type CoAPReceivePart struct {
	Start   time.Time         `json:"start"`       // of the part
	Counts  CoAPReceiveCounts `json:"counts"`      // of the requests sent in it
	MeanRTT float64           `json:"mean_rtt_ms"` // milliseconds, of the answered; 0: none
	MaxRTT  float64           `json:"max_rtt_ms"`  // likewise
}

// CoAPBench is what `weir coap bench --json` prints.
type CoAPBench struct {
	Result    BenchResult      `json:"result"`    // in the form of all measurements
	Stats     CoAPBenchStats   `json:"stats"`     // since the start
	Setup     float64          `json:"setup_s"`   // seconds for all clients and handshakes
	Handshake *BenchLatency    `json:"handshake"` // null: there was none
	Groups    []CoAPBenchGroup `json:"groups"`    // how evenly the clients were served
}

// CoAPBenchRun is one element of the list that `weir coap bench-all --json` prints.
type CoAPBenchRun struct {
	Test    string     `json:"test"`            // transport and mode
	Clients int        `json:"clients"`         // of the load
	Error   string     `json:"error,omitempty"` // why it failed, or what was lost; absent: nothing
	Bench   *CoAPBench `json:"bench,omitempty"` // absent: the server refused the first request
}

// CoAPBenchSample is a line of `weir coap bench --progress json`: the load since the line before it. Times of waits count from when a request
// was intended to be sent.
type CoAPBenchSample struct {
	At      time.Time      `json:"at"`         // end of the interval
	Period  float64        `json:"period_s"`   // its length
	Max     float64        `json:"max_ms"`     // longest wait for a response that came in the interval; 0: none came
	Waiting float64        `json:"waiting_ms"` // longest time that a client has waited by now for a response that has not come; 0: none waits
	Silence float64        `json:"silence_ms"` // longest time without a response to any client of a worker that ended in the interval
	Late    float64        `json:"late_ms"`    // how much later than intended this program did something: it was not scheduled
	Total   CoAPBenchStats `json:"total"`      // since the start
}

// CoAPBenchStats counts since the start of a load. Every field but Clients only grows.
type CoAPBenchStats struct {
	Sent            uint64 `json:"sent"`             // requests, and further blocks of them; retransmissions not counted
	Requests        uint64 `json:"requests"`         // answered with success (2.xx)
	Failed          uint64 `json:"failed"`           // answered with an error (4.xx, 5.xx) or RST
	Wrong           uint64 `json:"wrong"`            // of those answered with success, with an answer to another request; counted with --serials only
	Lost            uint64 `json:"lost"`             // requests without an answer after all retransmissions
	Retransmissions uint64 `json:"retransmissions"`  // of requests
	Errors          uint64 `json:"errors"`           // transmission errors: requests lost, failed, and failed handshakes
	Handshakes      uint64 `json:"handshakes"`       // completed
	Rehandshakes    uint64 `json:"rehandshakes"`     // completed or begun by a client that had had a session
	HandshakeErrors uint64 `json:"handshake_errors"` // timed out or refused
	LostSessions    uint64 `json:"lost_sessions"`    // sessions given up: fatal alert or a lost request
	Rebinds         uint64 `json:"rebinds"`          // changes of a client's source port
	Moves           uint64 `json:"moves"`            // of those, to another source address
	PathChallenges  uint64 `json:"path_challenges"`  // of the server, answered, after a change of address (RFC 9853)
	Echoes          uint64 `json:"echoes"`           // repetitions of requests with the Echo option that the server demanded (RFC 9175); also in sent
	FirstBlocks     uint64 `json:"first_blocks"`     // answers of which only the first block was taken (RFC 7959)
	Refused         uint64 `json:"refused"`          // datagrams the kernel or the server's host refused (nothing listens, no buffer)
	Stray           uint64 `json:"stray"`            // datagrams and records that belong to nothing (late duplicates, forgeries)
	Notifications   uint64 `json:"notifications"`    // received, in mode observe
	Served          uint64 `json:"served"`           // requests of the server answered, or notifications sent to it, in the reverse modes
	Blocks          uint64 `json:"blocks"`           // messages behind the first one of a transfer in blocks
	Resumed         uint64 `json:"resumed"`          // of the handshakes, those that resumed a session
	Clients         int    `json:"clients"`          // with a session now (or started, without DTLS)
}

// CoAPBenchGroup is a set of clients that had about the same number of answered requests.
type CoAPBenchGroup struct {
	Clients int    `json:"clients"` // in the group
	From    uint64 `json:"from"`    // least number of requests
	To      uint64 `json:"to"`      // largest number of requests
}

// CoAPCheck is the output of `weir coap check --json`.
type CoAPCheck struct {
	URI          string          `json:"uri"`          // of the server
	Passed       int             `json:"passed"`       // cases
	Failed       int             `json:"failed"`       // cases
	Inconclusive int             `json:"inconclusive"` // cases
	Cases        []CoAPCheckCase `json:"cases"`        // in the order in which they ran
}

// CoAPCheckCase is the verdict of one case of the ETSI list.
type CoAPCheckCase struct {
	ID        string   `json:"id"`                  // such as TD_COAP_CORE_01
	Title     string   `json:"title"`               // what the case is about
	Verdict   string   `json:"verdict"`             // pass, fail or inconclusive: the server lacks what the case needs
	Reason    string   `json:"reason,omitempty"`    // of the verdict; absent: the case passed
	Sent      string   `json:"sent,omitempty"`      // the request whose answer made the case fail; absent: it did not fail, or not for an answer
	Expected  string   `json:"expected,omitempty"`  // of the answer; absent likewise
	Received  string   `json:"received,omitempty"`  // what came instead; absent likewise
	Reference string   `json:"reference,omitempty"` // where that is demanded: RFC and section; absent likewise
	Seconds   float64  `json:"seconds"`             // that the case took
	Trace     []string `json:"trace"`               // messages of the case, with arrows for their direction; the first 256
}
