package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A document of SPDX 2.3, as far as it is needed.
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID         string      `json:"SPDXID"`
	Name       string      `json:"name"`
	Version    string      `json:"versionInfo,omitempty"`
	Supplier   string      `json:"supplier"`
	Download   string      `json:"downloadLocation"`
	Analyzed   bool        `json:"filesAnalyzed"`
	License    string      `json:"licenseDeclared"`
	Concluded  string      `json:"licenseConcluded"`
	Copyright  string      `json:"copyrightText"`
	Comment    string      `json:"comment,omitempty"`
	References []reference `json:"externalRefs,omitempty"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Kind string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// documentOf lists what a binary consists of: its module, the Go standard library, and every module that is linked into it, as the linker
// has written into the binary. It depends on the binary and on the licences alone.
func documentOf(binary []byte, architecture string, licences licences) (*document, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, fmt.Errorf("the modules of the binary for %s: %w", architecture, err)
	}
	created := "1970-01-01T00:00:00Z" // as the image
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			created = s.Value
		}
	}
	d := &document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "weir-linux-" + architecture,
		Namespace: fmt.Sprintf("https://github.com/weir-lb/weir/spdx/%x", sha256.Sum256(binary)),
		Creation:  creation{created, []string{"Tool: weir-deploy"}},
	}
	main := d.add(&info.Main, "Apache-2.0")
	d.Relationships = append(d.Relationships, relationship{d.ID, "DESCRIBES", main})
	modules := append([]*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...)
	slices.SortStableFunc(modules, func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	for _, m := range modules {
		license, err := licences.of(m.Path)
		if err != nil {
			return nil, err
		}
		if m.Replace != nil {
			m = m.Replace
		}
		d.Relationships = append(d.Relationships, relationship{main, "CONTAINS", d.add(m, license)})
	}
	return d, nil
}

// licences are SPDX expressions by module, as .ci/licences finds them; nil: none is asserted.
type licences map[string]string

// readLicences reads the file that .ci/licences -spdx writes; without a name there is none.
func readLicences(file string) (licences, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found := licences{}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return found, nil
}

func (l licences) of(module string) (string, error) {
	switch {
	case l == nil:
		return "NOASSERTION", nil
	case module == "stdlib":
		return "BSD-3-Clause", nil
	case l[module] == "":
		return "", fmt.Errorf("no licence of %s is known: make the file of licences from the same source as the binary", module)
	}
	return l[module], nil
}

// add adds a module and returns its id.
func (d *document) add(m *debug.Module, license string) string {
	p := spdxPackage{
		ID: fmt.Sprintf("SPDXRef-Package-%d", len(d.Packages)), Name: m.Path, Version: m.Version, Supplier: "NOASSERTION", Download: "NOASSERTION",
		License: license, Concluded: "NOASSERTION", Copyright: "NOASSERTION",
		References: []reference{{"PACKAGE-MANAGER", "purl", packageURL(m)}},
	}
	if m.Sum != "" {
		p.Comment = "go.sum " + m.Sum
	}
	d.Packages = append(d.Packages, p)
	return p.ID
}

// packageURL is a purl of type golang.
func packageURL(m *debug.Module) string {
	text := "pkg:golang/" + m.Path
	if m.Version != "" {
		text += "@" + url.QueryEscape(m.Version)
	}
	return text
}

// attestation is an image whose layer is the bill of materials of another one: an in-toto statement, as BuildKit attaches it.
func attestation(of v1.Image, binary []byte, architecture, tag string, licences licences) (mutate.IndexAddendum, error) {
	none := mutate.IndexAddendum{}
	predicate, err := documentOf(binary, architecture, licences)
	if err != nil {
		return none, err
	}
	digest, err := of.Digest()
	if err != nil {
		return none, err
	}
	const kind = "https://spdx.dev/Document"
	statement, err := json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v0.1", "predicateType": kind, "predicate": predicate,
		"subject": []any{map[string]any{"name": fmt.Sprintf("pkg:docker/%s?platform=linux%%2F%s", strings.Replace(tag, ":", "@", 1), architecture), "digest": map[string]string{digest.Algorithm: digest.Hex}}},
	})
	if err != nil {
		return none, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer: static.NewLayer(statement, "application/vnd.in-toto+json"), Annotations: map[string]string{"in-toto.io/predicate-type": kind},
	})
	return mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
		Platform:    &v1.Platform{OS: "unknown", Architecture: "unknown"},
		Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": digest.String()},
	}}, err
}

// writeDocument writes the bill of materials of a binary.
func writeDocument(w io.Writer, binary []byte, architecture string, licences licences) error {
	d, err := documentOf(binary, architecture, licences)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(d)
}
