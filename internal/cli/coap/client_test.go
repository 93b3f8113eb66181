package coap

import (
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

func TestCoapClientUsage(t *testing.T) {
	for want, args := range map[string]string{
		"give one URI":           "coap get",
		"write coap://host/path": "coap get http://localhost",
		"is no CoAP method":      "coap get coap://localhost --method STEAL",
		"is no content format":   "coap get coap://localhost --accept yaml",
		"--secret-hex":           "coap get coaps://localhost --secret-hex abc",
		"not between 0 and 32":   "coap get coaps://localhost --cid-length 33",
		"more than 0":            "coap bench coap://localhost --rebind-share 0",
		"give at least 1":        "coap bench coap://localhost --clients 0",
		"--clients: -1":          "coap bench coap://localhost --clients -1",
		"use each or shared":     "coap bench coap://localhost --sockets some",
		"--payload-size":         "coap bench coap://localhost --payload-size 8001",
		"rebind share":           "coap bench coap://localhost --rebind-share 1.5",
	} {
		if _, _, err := clitest.Both(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
