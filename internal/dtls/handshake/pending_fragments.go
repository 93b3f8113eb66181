package handshake

// fragments takes those of the messages that the client's flight has. No client has reason to send
// others, and so a stranger cannot take their places, nor much memory.
func (p *Pending) fragments(body []byte) {
	for len(body) > 0 {
		f, rest, ok := nextFragment(body)
		if !ok {
			return
		}
		if limit := p.expected(f.sequence, f.typ); f.length <= limit {
			p.add(&f, 0)
		}
		body = rest
	}
}

const (
	maxKeyExchange = 2 + maxIdentity + 1 + 97 // with a point on P-384
	maxSignature   = 4 + maxRSA/8
)

// expected returns the maximum length of the client's message of that number and type, or -1 if there is no such message.
func (p *Pending) expected(sequence uint16, typ byte) int {
	n := sequence - p.first
	if !p.certificateRequested {
		n++
	}
	switch {
	case n == 0 && typ == typeCertificate:
		return MaxMessage
	case n == 1 && typ == typeClientKeyExchange:
		return maxKeyExchange
	case n == 2 && typ == typeCertificateVerify && p.certificateRequested:
		return maxSignature
	}
	return -1
}

// add, pop and forget pass to the reassembly, and charge the memory that it takes.
func (p *Pending) add(f *fragment, epoch uint16) {
	before := p.in.held()
	p.in.add(f, epoch)
	p.charge(p.in.held() - before)
}

func (p *Pending) pop() {
	before := p.in.held()
	p.in.pop()
	p.charge(p.in.held() - before)
}

func (p *Pending) forget() {
	before := p.in.held()
	p.in.forget()
	p.charge(p.in.held() - before)
}

func (p *Pending) charge(n int) {
	p.charged += n
	p.owner.held += n
}
