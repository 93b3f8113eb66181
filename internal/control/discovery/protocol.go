package discovery

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"
)

// Limits of the protocol.
const (
	MaxConfig = 8 << 20 // bytes of a configuration, as config.MaxJSONBytes
	MaxNodes  = 5000    // that a server remembers
	MaxReason = 4 << 10 // bytes of the reason for which a node refuses a configuration

	maxRelays = 16 // other servers that follow this one

	maxLine   = 4*MaxConfig + 1024 // quoted text may be longer than it is
	maxReport = 8*MaxReason + 1024
	maxName   = 253 // of a node, as in Kubernetes
	// Of the table that a relay reports: in it a reason has maxRelayedReason bytes.
	maxRelayedReason = 512
	maxRelayed       = MaxNodes * (maxName + 6*maxRelayedReason + 256)
)

// Paths of the protocol.
const (
	configPath  = "/weir/lb/v1/config"
	appliedPath = "/weir/lb/v1/applied"
	relayPath   = "/weir/lb/v1/relay"
	relayedPath = "/weir/lb/v1/relayed"
)

// Times of both ends.
const (
	aliveEvery   = 10 * time.Second
	silenceLimit = 30 * time.Second // of the server, after which a connection is closed
	writeTimeout = 10 * time.Second // of a node that does not read
	firstRetry   = time.Second
	longestRetry = 30 * time.Second
)

// message is a line of the stream; without a version it only shows that the server is there.
type message struct {
	Version string `json:"version,omitempty"`
	Config  string `json:"config,omitempty"`
}

// Report is what became of a configuration at a node.
type Report struct {
	Version    string `json:"version"`              // of the configuration
	Generation uint64 `json:"generation,omitempty"` // number that the node gave it: what its status shows
	Error      string `json:"error,omitempty"`      // why it was refused; absent: it is in force
}

// relayed is what a relay reports: the nodes that are connected to it.
type relayed struct {
	Nodes []relayedNode `json:"nodes"`
}

type relayedNode struct {
	Node       string `json:"node"`
	Applied    string `json:"applied,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	Refused    string `json:"refused,omitempty"`
	Error      string `json:"error,omitempty"`
}

// Version is the fingerprint of a configuration.
func Version(config []byte) string {
	sum := sha256.Sum256(config)
	return hex.EncodeToString(sum[:16])
}

// validVersion reports whether text can be a version; the empty one means none.
func validVersion(text string) bool {
	return text == "" || len(text) == 32 && strings.Trim(text, "0123456789abcdef") == ""
}

// validNode reports whether a name can be that of a node.
func validNode(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}) < 0
}

var (
	errTooLong = errors.New("longer than 8 MiB")
	errNode    = errors.New("a node has a name of letters, digits and - . _")
)

// shortened is at most limit bytes of text, whole characters.
func shortened(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
