package fragsim

import (
	"fmt"
	"time"
)

// Kind is the table that is simulated.
type Kind uint8

const (
	Weir  Kind = iota // flow.Fragments
	NFQLB             // chains by djb2, stale entries kept until their chain is touched
)

// String is the name that ParseKind reads.
func (k Kind) String() string {
	if k == NFQLB {
		return "nfqlb"
	}
	return "weir"
}

// MarshalText writes the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ParseKind reads "weir" or "nfqlb".
func ParseKind(text string) (Kind, error) {
	for _, k := range []Kind{Weir, NFQLB} {
		if text == k.String() {
			return k, nil
		}
	}
	return 0, fmt.Errorf("%q is no table; write weir or nfqlb", text)
}

// Bounds, so that a slip of the finger costs an error and not the machine.
const (
	MaxEntries = 1 << 24
	MaxInserts = 4e9 // of one run: some minutes
	MaxRuns    = 10000
)

// Config says what to simulate.
type Config struct {
	Table         Kind
	Size, Buckets int           // nfqlb's ft_size and ft_buckets; Weir's table has their sum as entries
	TTL           time.Duration // idle life of an entry
	Rate          int           // datagrams per second
	Duration      time.Duration // of the traffic, per run
	Repeat        int           // runs, each with its own start
	Parallel      int           // runs at one time; changes nothing in the results
	Seed          uint64        // of all runs; the same seed gives the same results
}

// Validate returns the first thing wrong, naming the flag and the remedy.
func (c Config) Validate() error {
	inserts := float64(c.Rate) * c.Duration.Seconds()
	switch {
	case c.Size < 1 || c.Size > MaxEntries:
		return fmt.Errorf("size %d: write 1 to %d", c.Size, MaxEntries)
	case c.Buckets < 0 || c.Buckets > MaxEntries:
		return fmt.Errorf("buckets %d: write 0 to %d", c.Buckets, MaxEntries)
	case c.TTL < time.Millisecond || c.TTL > time.Hour:
		return fmt.Errorf("ttl %v: write 1ms to 1h", c.TTL)
	case c.Rate < 1 || c.Rate > 1e8:
		return fmt.Errorf("rate %d: write 1 to 100000000 datagrams per second", c.Rate)
	case c.Duration <= 0 || c.Duration > 1000*time.Hour:
		return fmt.Errorf("duration %v: write a time up to 1000h", c.Duration)
	case inserts > MaxInserts:
		return fmt.Errorf("rate %d for %v is %.3g datagrams: write a shorter duration or a lower rate, at most %.3g datagrams", c.Rate, c.Duration, inserts, float64(MaxInserts))
	case c.Repeat < 1 || c.Repeat > MaxRuns:
		return fmt.Errorf("repeat %d: write 1 to %d", c.Repeat, MaxRuns)
	case c.Parallel < 1 || c.Parallel > 1024:
		return fmt.Errorf("parallel %d: write 1 to 1024", c.Parallel)
	}
	return nil
}

// live is how many datagrams are alive on average.
func (c Config) live() float64 { return float64(c.Rate) * c.TTL.Seconds() }
