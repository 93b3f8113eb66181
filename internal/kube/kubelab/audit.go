package kubelab

import (
	"bytes"
	"encoding/json"
	"os"
)

// Request is one that a service account has made, as the API server's audit log has it.
type Request struct {
	Verb, Group, Resource string // the resource with its subresource: pods/status
	Forbidden             bool
}

// Requests are the different requests of a service account so far.
func (c *ControlPlane) Requests(namespace, account string) (map[Request]int, error) {
	text, err := os.ReadFile(c.file("audit"))
	if err != nil {
		return nil, err
	}
	all := map[Request]int{}
	for line := range bytes.Lines(text) {
		var event struct {
			User           struct{ Username string }
			Verb           string
			ObjectRef      *struct{ APIGroup, Resource, Subresource string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, err
		}
		if event.ObjectRef == nil || event.User.Username != "system:serviceaccount:"+namespace+":"+account {
			continue
		}
		r := Request{Verb: event.Verb, Group: event.ObjectRef.APIGroup, Resource: event.ObjectRef.Resource, Forbidden: event.ResponseStatus.Code == 403}
		if event.ObjectRef.Subresource != "" {
			r.Resource += "/" + event.ObjectRef.Subresource
		}
		all[r]++
	}
	return all, nil
}
