package cli

import (
	"errors"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// Duration is the type of every flag that is a length of time: a number with its unit. A bare number is refused, except 0.
type Duration struct{ value *time.Duration }

// DurationVar adds a flag of that type.
func DurationVar(flags *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	flag := flags.VarPF(Duration{p}, name, "", usage)
	if value == 0 {
		flag.DefValue = "0" // what pflag leaves out of the help
	}
}

func (d Duration) String() string {
	if d.value == nil { // pflag queries a zero value for the default
		return "0s"
	}
	return d.value.String()
}

func (d Duration) Type() string { return "duration" }

func (d Duration) Set(text string) error {
	value, err := time.ParseDuration(text)
	if err != nil {
		if _, bare := strconv.ParseFloat(text, 64); bare == nil {
			return errors.New("write " + text + "s, not " + text)
		}
		return errors.New("write a number with its unit, such as 500ms, 30s or 2h")
	}
	*d.value = value
	return nil
}
