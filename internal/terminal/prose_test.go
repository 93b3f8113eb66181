package terminal

import (
	"bytes"
	"strings"
	"testing"
)

// sized is an output that is width columns wide.
type sized struct {
	bytes.Buffer
	width int
}

func (s *sized) Width() int { return s.width }

func TestProseFitsTheTerminal(t *testing.T) {
	const text = "\nAim: no datagram is lost while\nall flows are listed.\n\nThe machine is shared.\n"
	for width, want := range map[int]string{
		0:  text + "\n",
		80: text + "\n",
		30: text + "\n",
		20: "\nAim: no datagram is\nlost while all flows\nare listed.\n\nThe machine is\nshared.\n\n",
		9:  "\nAim: no\ndatagram\nis lost\nwhile all\nflows are\nlisted.\n\nThe\nmachine\nis\nshared.\n\n",
	} {
		out := &sized{width: width}
		if err := Prose(out, text); err != nil || out.String() != want {
			t.Errorf("%d columns: %v, %q, want %q", width, err, out.String(), want)
		}
	}
	out := &sized{width: 16}
	if err := Prose(out, "For this:\n  a: limits\n  b: 7\nand no more of it"); err != nil || out.String() != "For this:\n  a: limits\n  b: 7\nand no more of\nit\n" {
		t.Errorf("%v: %q", err, out.String())
	}
	out = &sized{width: 30}
	if err := Prose(out, "Commands:\n  a          short\n  longer-one what is not so short as that"); err != nil || out.String() != "Commands:\n  a          short\n  longer-one what is not so\n             short as that\n" {
		t.Errorf("%v: %q", err, out.String())
	}
	out = &sized{width: 12}
	if err := Prose(out, strings.Repeat("word ", 40)); err != nil || widest(out.String()) > 12 {
		t.Errorf("%v: %q", err, out.String())
	}
}
