package snat

import (
	"slices"
	"strconv"
	"strings"
)

// Kinds lists every kind of stage, in the order of a path.
func Kinds() []Kind {
	return []Kind{Files, Ephemeral, Masquerade, Conntrack, VMFlows, AzureLB, AzureNAT, AWSNAT, AWSRegional, GCPNAT, DNATLB, MasqueradeLB, Memory, AcceptQueue}
}

func known(k Kind) bool { return slices.Contains(Kinds(), k) }

func kindNames() string {
	names := make([]string, 0, 16)
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// Group writes a number with commas: 64,512.
func Group(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}
