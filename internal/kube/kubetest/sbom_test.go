package kubetest_test

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

var spdxExpression = regexp.MustCompile(`^(Apache-2\.0|BSD-[23]-Clause|ISC|MIT)( AND (Apache-2\.0|BSD-[23]-Clause|ISC|MIT))*$`)

// checkBill checks the bill of materials in an image's archive: it is that of the image, and has every module that is linked into the binary, with
// its licence.
func checkBill(t *testing.T, archive, binary string) {
	t.Helper()
	blobs := map[string][]byte{}
	text, err := os.ReadFile(archive)
	clitest.Must(t, err)
	each(t, bytes.NewReader(text), func(h *tar.Header, content []byte) { blobs[h.Name] = content })
	type descriptor struct {
		Digest      string
		Annotations map[string]string
	}
	var index struct{ Manifests []descriptor }
	var manifest struct{ Layers []descriptor }
	var statement struct {
		Subject []struct{ Digest map[string]string }

		Predicate struct {
			SpdxVersion string
			Packages    []struct{ Name, VersionInfo, LicenseDeclared string }
		}
	}
	read := func(name string, into any) { clitest.Must(t, json.Unmarshal(blobs[name], into)) }
	blob := func(d descriptor) string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }
	read("index.json", &index)
	read(blob(index.Manifests[0]), &index)
	if len(index.Manifests) != 2 || index.Manifests[1].Annotations["vnd.docker.reference.digest"] != index.Manifests[0].Digest {
		t.Fatalf("want an image and its bill: %+v", index)
	}
	read(blob(index.Manifests[1]), &manifest)
	read(blob(manifest.Layers[0]), &statement)
	if subject := "sha256:" + statement.Subject[0].Digest["sha256"]; subject != index.Manifests[0].Digest || statement.Predicate.SpdxVersion != "SPDX-2.3" {
		t.Errorf("%s of %s, the image is %s", statement.Predicate.SpdxVersion, subject, index.Manifests[0].Digest)
	}
	listed := map[string]string{}
	for _, p := range statement.Predicate.Packages {
		listed[p.Name] = p.VersionInfo
		if !spdxExpression.MatchString(p.LicenseDeclared) {
			t.Errorf("%s: licence %q", p.Name, p.LicenseDeclared)
		}
	}
	info, err := buildinfo.ReadFile(binary)
	clitest.Must(t, err)
	for _, m := range info.Deps {
		if m.Replace == nil && listed[m.Path] != m.Version {
			t.Errorf("%s %s is listed as %q", m.Path, m.Version, listed[m.Path])
		}
	}
	if listed["stdlib"] != strings.TrimPrefix(info.GoVersion, "go") || len(info.Deps) < 50 {
		t.Errorf("Go %s is listed as %q, %d modules", info.GoVersion, listed["stdlib"], len(info.Deps))
	}
}
