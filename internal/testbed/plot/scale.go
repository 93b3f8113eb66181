package plot

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ticks gives at most about n round values that cover [0, top]; the last is >= top.
func ticks(top float64, n int) []float64 {
	if top <= 0 || math.IsNaN(top) || math.IsInf(top, 0) {
		top = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(top/float64(n))))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if top/(step*m) <= float64(n) {
			step *= m
			break
		}
	}
	var out []float64
	for i := 0; ; i++ {
		v := step * float64(i)
		out = append(out, v)
		if v >= top*(1-1e-9) {
			return out
		}
	}
}

// decades gives the lines of a logarithmic axis that covers [low, high]: 1, 2 and 5 of each power of ten where there are few.
func decades(low, high float64) []float64 {
	if !(low > 0) || math.IsInf(low, 0) || !(high >= low) {
		low, high = 1, 10
	}
	first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high)+1e-9)
	last = math.Max(last, first+1)
	steps := []float64{1, 2, 5}
	if last-first > 2 {
		steps = steps[:1]
	}
	var out []float64
	for p := first; p < last; p++ {
		for _, s := range steps {
			v := s * math.Pow(10, p)
			out = append(out, v)
			if v >= high && len(out) > 1 {
				return out
			}
		}
	}
	return append(out, math.Pow(10, last))
}

// Whole writes a whole number with a comma at each thousand.
func Whole(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// number writes v as a reader of an axis wants it: 3 significant digits, k and M.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case a >= 1e6:
		return trim(v/1e6) + "M"
	case a >= 1e4:
		return trim(v/1e3) + "k"
	default:
		return trim(v)
	}
}

func trim(v float64) string {
	digits := 0
	switch a := math.Abs(v); {
	case a < 1:
		digits = 3
	case a < 10:
		digits = 2
	case a < 100:
		digits = 1
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// xy formats a coordinate; a tenth of a pixel is enough and keeps files small.
func xy(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

func point(x, y float64) string { return fmt.Sprintf("%s,%s", xy(x), xy(y)) }
