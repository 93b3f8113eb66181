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
	url, host, token string
	client           http.Client
}

// NewSender returns a sender for HOST:PORT or http(s)://HOST[:PORT][/PREFIX], with the service's token if it has one. Nothing is
// sent yet.
func NewSender(to, token string) (*Sender, error) {
	bare := !strings.Contains(to, "://")
	if bare {
		to = "http://" + to
	}
	u, err := url.Parse(to)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("statistics service %q: write HOST:PORT or http://HOST:PORT", to)
	}
	if bare && u.Port() == "" {
		return nil, fmt.Errorf("statistics service %q: no port; write HOST:PORT, such as %s:9190", u.Host, u.Hostname())
	}
	if u.User != nil {
		return nil, fmt.Errorf("statistics service at %s: a secret in an address is seen by all; it goes into a file", u.Host)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute} // no proxy: as HTTP_PROXY is not meant for a run
	return &Sender{url: u.JoinPath("api/reports").String(), host: u.Host, token: token, client: http.Client{Timeout: 5 * time.Second, Transport: transport}}, nil
}

// Send posts one report and waits for the answer, at most five seconds. The error says what the service did not like.
func (s *Sender) Send(ctx context.Context, report *tcpscale.Report) error {
	short := *report
	short.Samples, short.History = nil, nil // the service shows none, and has its own
	body, err := json.Marshal(&short)
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
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
