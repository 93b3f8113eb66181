package node

import "testing"

// Clients without a state of their own may agree on a new context with the server of the public test context, as Californium's do
// (RFC 8613 Appendix B.2); a client of it never may.
func TestTestContextIsRenewable(t *testing.T) {
	served := true
	table, err := (&Config{OSCORETest: &served}).loadContexts()
	if err != nil || len(table.Contexts()) != 1 {
		t.Fatalf("%v, %v", table, err)
	}
	if p := table.Contexts()[0].Parameters(); !p.Renewable || string(p.SenderID) != "\x02" || string(p.RecipientID) != "\x01" {
		t.Errorf("%+v", p)
	}
	if TestOSCORE().Renewable {
		t.Error("the client's side is renewable")
	}
}
