package kubelab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Object is the head of any object.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// plural is the resource of a kind, and whether it is in namespaces.
func plural(kind string) (name string, namespaced bool) {
	switch name = strings.ToLower(kind); {
	case strings.HasSuffix(name, "s"):
		name += "es"
	case strings.HasSuffix(name, "y") && !strings.HasSuffix(name, "ay"):
		name = strings.TrimSuffix(name, "y") + "ies"
	default:
		name += "s"
	}
	cluster := []string{"Namespace", "Node", "CustomResourceDefinition", "GatewayClass", "ClusterRole", "ClusterRoleBinding", "Dataplane"}
	return name, !slices.Contains(cluster, kind)
}

// path is where the API server has an object.
func (o *Object) path() string {
	root := "/apis/" + o.APIVersion
	if !strings.Contains(o.APIVersion, "/") {
		root = "/api/" + o.APIVersion
	}
	name, namespaced := plural(o.Kind)
	if namespaced {
		root += "/namespaces/" + o.Metadata.Namespace
	}
	return root + "/" + name + "/" + o.Metadata.Name
}

// Documents splits YAML into its documents, each as JSON, without empty ones.
func Documents(text []byte) (all [][]byte, err error) {
	for document := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---")) {
		object, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		if string(object) != "null" {
			all = append(all, object)
		}
	}
	return all, nil
}

// Apply applies every object of some YAML on the server's side, where an unknown or repeated field is an error. Objects without a
// namespace get the one given. With dryRun the server checks all and keeps nothing.
func (c *ControlPlane) Apply(namespace string, text []byte, dryRun bool) error {
	documents, err := Documents(text)
	if err != nil {
		return err
	}
	for _, document := range documents {
		var object Object
		if err := json.Unmarshal(document, &object); err != nil {
			return err
		}
		if object.Metadata.Namespace == "" {
			object.Metadata.Namespace = namespace
		}
		query := "?fieldManager=test&force=true&fieldValidation=Strict"
		if dryRun {
			query += "&dryRun=All"
		}
		if err := c.request(http.MethodPatch, object.path()+query, "application/apply-patch+yaml", document, nil); err != nil {
			return fmt.Errorf("%s %s: %w", object.Kind, object.Metadata.Name, err)
		}
	}
	return nil
}

// Get reads the object or list at a path of the API.
func (c *ControlPlane) Get(path string, into any) error {
	return c.request(http.MethodGet, path, "", nil, into)
}

// Create makes an object of JSON in the collection at a path of the API.
func (c *ControlPlane) Create(path, object string) error {
	return c.request(http.MethodPost, path, "application/json", []byte(object), nil)
}

// Merge changes fields of an object.
func (c *ControlPlane) Merge(path, patch string) error {
	return c.request(http.MethodPatch, path, "application/merge-patch+json", []byte(patch), nil)
}

// Delete deletes an object; grace is how many seconds its processes may take, negative: as many as it says.
func (c *ControlPlane) Delete(path string, grace int) error {
	body := `{"propagationPolicy": "Background"}`
	if grace >= 0 {
		body = fmt.Sprintf(`{"propagationPolicy": "Background", "gracePeriodSeconds": %d}`, grace)
	}
	return c.request(http.MethodDelete, path, "application/json", []byte(body), nil)
}

// Token makes a token of a service account.
func (c *ControlPlane) Token(namespace, account string) (string, error) {
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	err := c.request(http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", "application/json",
		[]byte(`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}`), &answer)
	return answer.Status.Token, err
}

func (c *ControlPlane) request(method, path, content string, body []byte, into any) error {
	request, err := http.NewRequestWithContext(c.ctx, method, "https://"+c.address.String()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", content)
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
