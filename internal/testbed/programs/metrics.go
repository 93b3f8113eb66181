package programs

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
)

// Metrics requests the metrics; see [ParseMetrics].
func (d *Daemon) Metrics(ctx context.Context) (map[string]float64, error) {
	text, err := d.Do(ctx, http.MethodGet, "/metrics", "")
	return ParseMetrics(text), err
}

// ParseMetrics reads Prometheus' text format: each metric with its labels as written, and its sum over them.
func ParseMetrics(text []byte) map[string]float64 {
	sums := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		space := strings.LastIndexByte(line, ' ')
		if space < 0 || line[0] == '#' {
			continue
		}
		name, _, _ := strings.Cut(line[:space], "{")
		if value, err := strconv.ParseFloat(line[space+1:], 64); err == nil {
			sums[name] += value
			if name != line[:space] {
				sums[line[:space]] = value
			}
		}
	}
	return sums
}
