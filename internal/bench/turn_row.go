package bench

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/api/v1"
)

// turnLoss is the share that was lost.
func turnLoss(r *v1.TurnBenchConnection) float64 {
	if r.Total == 0 {
		return 0
	}
	return float64(r.Lost) / float64(r.Total)
}

// turnPower is iperf's "network power": bytes a second by seconds of latency, in millions.
func turnPower(r *v1.TurnBenchConnection) float64 {
	if !r.Latency || r.Average <= 0 {
		return 0
	}
	return r.Bandwidth / 8 / (r.Average / 1e3) / 1e6
}

const turnHeader = "[ ID] Interval            Transfer     Bandwidth        Jitter   Lost/Total  Latency avg/min/max/stdev PPS NetPwr"

// turnLine is the row as iperf 2 writes it.
func turnLine(r *v1.TurnBenchConnection) string {
	id, latency, power := "SUM", "-/-/-/- ms", ""
	if r.ID >= 0 {
		id = fmt.Sprintf("%3d", r.ID)
	}
	if r.Latency {
		latency = fmt.Sprintf("%.3f/%.3f/%.3f/%.3f ms", r.Average, r.Min, r.Max, r.Stdev)
		power = fmt.Sprintf(" %.0f", turnPower(r))
	}
	share := "0"
	if r.Lost > 0 {
		share = strconv.FormatFloat(100*turnLoss(r), 'g', 2, 64)
	}
	return fmt.Sprintf("[%s] 0.0000-%.4f sec  %sBytes  %sbits/sec  %6.3f ms %d/%d (%s%%) %s %.0f pps%s", id, r.Seconds,
		scaled(r.Bytes, 1024), scaled(r.Bandwidth, 1000), r.Jitter, r.Lost, r.Total, share, latency, r.Rate, power)
}

// scaled writes a number with three digits and a prefix, as iperf does: 1.19 M.
func scaled(v, base float64) string {
	unit := ""
	for _, next := range []string{"K", "M", "G", "T"} {
		if v < base*0.9995 {
			break
		}
		v, unit = v/base, next
	}
	digits := 0
	switch {
	case v < 9.995:
		digits = 2
	case v < 99.95:
		digits = 1
	}
	return fmt.Sprintf("%s %s", strconv.FormatFloat(v, 'f', digits, 64), unit)
}

// turnSum adds rows up. Bandwidths and rates add; the moments of latency combine, weighted by what was received.
func turnSum(rows []v1.TurnBenchConnection) v1.TurnBenchConnection {
	sum := v1.TurnBenchConnection{ID: -1}
	var weight, mean, m2 float64
	for i, r := range rows {
		sum.Seconds = max(sum.Seconds, r.Seconds)
		sum.Bytes += r.Bytes
		sum.Bandwidth += r.Bandwidth
		sum.Lost += r.Lost
		sum.Total += r.Total
		sum.Rate += r.Rate
		sum.Reordered += r.Reordered
		sum.Jitter += (r.Jitter - sum.Jitter) / float64(i+1)
		received := float64(r.Total - min(r.Lost, r.Total))
		if !r.Latency || received == 0 {
			continue
		}
		if !sum.Latency {
			sum.Latency, sum.Min = true, r.Min
		}
		sum.Min, sum.Max = min(sum.Min, r.Min), max(sum.Max, r.Max)
		delta, all := r.Average-mean, weight+received
		mean += delta * received / all
		m2 += r.Stdev*r.Stdev*received + delta*delta*weight*received/all
		weight = all
	}
	if sum.Latency {
		sum.Average, sum.Stdev = mean, math.Sqrt(m2/weight)
	}
	return sum
}

// iperfRow is a row of a connection in the report of an iperf 2 server or in a client's copy of it, with -e or without. Newer
// versions put more between the packets/s and the power.
var iperfRow = regexp.MustCompile(`^\[ *(\d+)\] +(\d+\.\d+)- *(\d+\.\d+) sec +([\d.]+) ([KMGT]?)Bytes +([\d.]+) ([KMGT]?)bits/sec +(-?[\d.]+) ms +(\d+)/ *(\d+) \([^)]*\)(?: +(-?[\d.]+)/ *(-?[\d.]+)/ *(-?[\d.]+)/ *([\d.]+) ms)?(?: +(\d+) pps)?`)

var iperfOrder = regexp.MustCompile(`^\[ *(\d+)\] +\d+\.\d+- *\d+\.\d+ sec +(\d+) datagrams received out-of-order`)

// parseIperfRows reads the rows of connections that span a whole test: those that begin at 0. Sums are ours to make.
func parseIperfRows(r io.Reader) (rows []v1.TurnBenchConnection, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), " \r")
		if late := iperfOrder.FindStringSubmatch(line); late != nil {
			if n := len(rows); n > 0 && strconv.Itoa(rows[n-1].ID) == late[1] {
				rows[n-1].Reordered, _ = strconv.ParseUint(late[2], 10, 64) // digits
			}
			continue
		}
		m := iperfRow.FindStringSubmatch(line)
		if m == nil || m[2] != "0.0000" && m[2] != "0.00" && m[2] != "0.0" {
			continue
		}
		row, err := iperfNumbers(m)
		if err != nil {
			return nil, fmt.Errorf("report of iperf: %q: %w", line, err)
		}
		rows = append(rows, row)
	}
	return rows, lines.Err()
}

func iperfNumbers(m []string) (row v1.TurnBenchConnection, err error) {
	number := func(text string) float64 {
		v, e := strconv.ParseFloat(text, 64)
		if e != nil && err == nil {
			err = e
		}
		return v
	}
	count := func(text string) uint64 {
		v, e := strconv.ParseUint(text, 10, 64)
		if e != nil && err == nil {
			err = e
		}
		return v
	}
	row.ID = int(min(count(m[1]), math.MaxInt32))
	row.Seconds = number(m[3]) - number(m[2])
	row.Bytes = number(m[4]) * prefixed(m[5], 1024)
	row.Bandwidth = number(m[6]) * prefixed(m[7], 1000)
	row.Jitter, row.Lost, row.Total = number(m[8]), count(m[9]), count(m[10])
	if m[11] != "" {
		row.Latency = true
		row.Average, row.Min, row.Max, row.Stdev = number(m[11]), number(m[12]), number(m[13]), number(m[14])
	}
	if row.Seconds > 0 {
		row.Rate = float64(row.Total-min(row.Lost, row.Total)) / row.Seconds
	}
	return row, err
}

// prefixed is what a prefix of iperf's multiplies by.
func prefixed(prefix string, base float64) float64 {
	return math.Pow(base, float64(strings.Index("_KMGT", prefix)))
}
