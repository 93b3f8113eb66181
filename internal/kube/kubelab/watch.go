package kubelab

import (
	"bufio"
	"context"
	"net/http"
	"time"
)

// podsPath lists all Pods.
const podsPath = "/api/v1/pods"

// watch wakes the kubelet when any Pod has changed, until ctx ends. What it missed while the API server was away it asks for when that is back.
func (k *Kubelet) watch(ctx context.Context) {
	for ctx.Err() == nil {
		_ = k.follow(ctx) // the API server may be away, or the time of the request over
		k.wake()
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

// follow reads one watch to its end.
func (k *Kubelet) follow(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+k.plane.address.String()+podsPath+"?watch=true", http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	response, err := k.plane.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is read to its end
	for events := bufio.NewReader(response.Body); ; k.wake() {
		if _, err := events.ReadSlice('\n'); err != nil && err != bufio.ErrBufferFull { //nolint:errorlint // it is not wrapped
			return err
		}
	}
}

// wake has the kubelet list the Pods.
func (k *Kubelet) wake() {
	select {
	case k.changed <- struct{}{}:
	default: // it will
	}
}
