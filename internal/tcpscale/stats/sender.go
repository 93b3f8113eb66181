package stats

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
)

// Sender posts reports to a service.
type Sender struct {
	url    string
	client http.Client
}

// NewSender returns a sender for HOST:PORT or http(s)://HOST[:PORT][/PREFIX]. Nothing is sent yet.
func NewSender(to string) (*Sender, error) {
	if !strings.Contains(to, "://") {
		to = "http://" + to
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("statistics service %q: write HOST:PORT or http://HOST:PORT", to)
	}
	return &Sender{url: u.JoinPath("api/reports").String(), client: http.Client{Timeout: 5 * time.Second}}, nil
}

// Send posts one report and waits for the answer, at most five seconds. The error says what the service did not like.
func (s *Sender) Send(ctx context.Context, report *tcpscale.Report) error {
	short := *report
	short.Samples = nil // the service shows none
	if len(short.History) > 1 {
		short.History = short.History[len(short.History)-1:] // that there is one says that this report is the last
	}
	body, err := json.Marshal(&short)
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4096)) // what there is of it is good enough
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("report to %s: %s: %s", s.url, response.Status, bytes.TrimSpace(text))
	}
	return nil
}
