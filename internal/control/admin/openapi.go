package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-lb/weir/api/v1"
)

// RouteKey is the key of an operation in an OpenAPI document that names its pattern as GET /routes does.
const RouteKey = "x-weir-route"

// openAPI answers GET /openapi.json: what Config.API says of the paths that this process serves.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	document, err := served(s.config.API, s.patterns)
	if err != nil {
		writeError(w, http.StatusInternalServerError, err)
		return
	}
	writeJSON(w, http.StatusOK, document)
}

// served leaves out of a document of OpenAPI what is not served, and the components that only that uses.
func served(text []byte, patterns []v1.Route) (map[string]any, error) {
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("the description of the API: %w", err)
	}
	serves := map[any]bool{}
	for _, route := range patterns {
		serves[route.Pattern] = true
	}
	paths, _ := document["paths"].(map[string]any)
	for path, item := range paths {
		operations, _ := item.(map[string]any)
		for method, operation := range operations {
			if of, ok := operation.(map[string]any); ok && !serves[of[RouteKey]] {
				delete(operations, method)
			}
		}
		if len(operations) == 0 {
			delete(paths, path)
		}
	}
	components, _ := document["components"].(map[string]any)
	used := map[string]bool{}
	references(paths, components, used)
	for kind, all := range components {
		named, _ := all.(map[string]any)
		for name := range named {
			if kind != "securitySchemes" && !used[kind+"/"+name] {
				delete(named, name)
			}
		}
	}
	return document, nil
}

// references enters which components a value refers to, directly or by others.
func references(value any, components map[string]any, used map[string]bool) {
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			references(one, components, used)
		}
	case map[string]any:
		if text, ok := value["$ref"].(string); ok {
			path := strings.TrimPrefix(text, "#/components/")
			if kind, name, ok := strings.Cut(path, "/"); ok && !used[path] {
				used[path] = true
				named, _ := components[kind].(map[string]any)
				references(named[name], components, used)
			}
		}
		for _, one := range value {
			references(one, components, used)
		}
	}
}
