package kubetest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

var update = flag.Bool("update", false, "write the manifests that are rendered from the chart")

// tool runs a command of the module tools/deploy.
func tool(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, nil, netlabtest.DeployTool(t), args...)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(filepath.Join(root, path))
	clitest.Must(t, err)
	return full
}

// The charts pass helm's linter, with their own values and with those of the plain manifests, which are what they render.
func TestChart(t *testing.T) {
	clitest.TakesSeconds(t)
	for _, c := range []struct{ name, chart, release, namespace string }{
		{"coap", "coap", "coap", "coap"},
		{"operator", "operator", "weir-operator", "weir-system"},
		{"l4", "operator", "weir", "weir-system"},
	} {
		t.Run(c.name, func(t *testing.T) { checkChart(t, c.name, c.chart, c.release, c.namespace) })
	}
}

func checkChart(t *testing.T, name, directory, release, namespace string) {
	chart, values := absolute(t, "deploy/"+directory), absolute(t, "deploy/"+name+"-manifests-values.yaml")
	tool(t, "lint", "-chart", chart)
	tool(t, "lint", "-chart", chart, "-values", values)
	text := "# Rendered from the chart in " + directory + " by `make manifests`.\n" + tool(t, "render", "-chart", chart, "-values", values, "-name", release, "-namespace", namespace)
	file := absolute(t, "deploy/"+name+"-manifests.yaml")
	if *update {
		clitest.Must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	if committed, err := os.ReadFile(file); err != nil || string(committed) != text {
		t.Errorf("%v: %s is not what the chart renders; run make manifests", err, file)
	}
}

// writeImage makes the image of a binary and returns its archive.
func writeImage(t *testing.T, binary string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "weir.tar")
	tool(t, append([]string{"image", "-binaries", runtime.GOARCH + "=" + binary, "-o", out}, args...)...)
	return out
}

// unpack returns a directory with the file system of an image, from its OCI archive, as a container runtime makes it.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	blobs := map[string][]byte{}
	text, err := os.ReadFile(archive)
	clitest.Must(t, err)
	each(t, bytes.NewReader(text), func(h *tar.Header, content []byte) { blobs[h.Name] = content })
	blob := func(digest string) []byte { return blobs["blobs/"+strings.Replace(digest, ":", "/", 1)] }
	var index struct {
		Manifests []struct{ Digest string }
	}
	var manifest struct {
		Layers []struct{ Digest string }
	}
	clitest.Must(t, json.Unmarshal(blobs["index.json"], &index))
	if len(index.Manifests) != 1 {
		t.Fatalf("%s: %d images; tools that copy it need one", archive, len(index.Manifests))
	}
	clitest.Must(t, json.Unmarshal(blob(index.Manifests[0].Digest), &index)) // of the architectures
	clitest.Must(t, json.Unmarshal(blob(index.Manifests[0].Digest), &manifest))
	directory := filepath.Join(t.TempDir(), "image")
	for _, layer := range manifest.Layers {
		content, err := gzip.NewReader(bytes.NewReader(blob(layer.Digest)))
		clitest.Must(t, err)
		each(t, content, func(h *tar.Header, text []byte) {
			at := filepath.Join(directory, filepath.Clean("/"+h.Name))
			switch h.Typeflag {
			case tar.TypeDir:
				clitest.Must(t, os.MkdirAll(at, h.FileInfo().Mode()))
				return
			case tar.TypeSymlink:
				clitest.Must(t, os.Symlink(h.Linkname, at))
				return
			}
			clitest.Must(t, os.WriteFile(at, text, h.FileInfo().Mode()))
		})
	}
	return directory
}

// each visits the entries of an archive.
func each(t *testing.T, from io.Reader, visit func(*tar.Header, []byte)) {
	t.Helper()
	archive := tar.NewReader(from)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		clitest.Must(t, err)
		content, err := io.ReadAll(archive)
		clitest.Must(t, err)
		visit(header, content)
	}
}

// The image has nothing but the program, which runs there: without a shell, a library, or a file that it could write to.
func TestRootImage(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	binary, licences := netlabtest.Weir(t), filepath.Join(t.TempDir(), "licences.json")
	run(t, nil, "go", "run", "-C", root, "./.ci/licences", "-spdx", licences)
	first, second := writeImage(t, binary, "-licences", licences), writeImage(t, binary, "-licences", licences)
	one, err := os.ReadFile(first)
	clitest.Must(t, err)
	two, err := os.ReadFile(second)
	clitest.Must(t, err)
	if !bytes.Equal(one, two) {
		t.Error("the same binary makes different images")
	}
	checkBill(t, first, binary)
	directory := unpack(t, first)
	files := 0
	clitest.Must(t, filepath.WalkDir(directory, func(_ string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files++
		}
		return err
	}))
	if files != 1 {
		t.Errorf("%d files", files)
	}
	if out := run(t, nil, "chroot", "--userspec=65532:65532", directory, "/usr/bin/weir", "version"); !strings.Contains(out, "weir") {
		t.Errorf("%s", out)
	}
	if out := run(t, nil, "chroot", "--userspec=65532:65532", directory, "/usr/bin/stunnerd", "--help"); !strings.Contains(out, "--udp-thread-num") {
		t.Errorf("%s", out)
	}
}

// Values that are wrong, or that no template reads, are refused, by the name of the value.
func TestChartRefusesWrongValues(t *testing.T) {
	clitest.TakesSeconds(t)
	for values, want := range map[string]string{
		"replicaz: 2":                         "replicaz",
		"l4: {loadBalancer: {enabled: true}}": "interfaces",
		"l4: {loadBalancer: {enabled: true, interfaces: [eth0], hok: tcx}}": "hok",
		"l4: {discovery: {tokenSecrt: x}}":                                  "tokenSecrt",
		"turn: {namespaces: [{name: media}]}":                               "ports",
		"resources: {requets: {cpu: 1}}":                                    "requets",
		"l4: {loadBalancer: {tolerations: [{key: a, efect: NoSchedule}]}}":  "efect",
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		clitest.Must(t, os.WriteFile(file, []byte(values), 0o600))
		out, err := exec.CommandContext(t.Context(), netlabtest.DeployTool(t), "render", "-chart", absolute(t, "deploy/operator"), "-values", file).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v %s", values, err, out)
		}
	}
}

// The load balancer's Pods have the capabilities that the command needs, and no others.
func TestChartCapabilities(t *testing.T) {
	text, err := os.ReadFile(absolute(t, "deploy/l4-manifests.yaml"))
	clitest.Must(t, err)
	documents, err := kubelab.Documents(text)
	clitest.Must(t, err)
	needs, _ := privilege.Of(privilege.LBRunEBPF)
	checked := false
	for _, document := range documents {
		var set appsv1.DaemonSet
		clitest.Must(t, json.Unmarshal(document, &set))
		if set.Kind != "DaemonSet" {
			continue
		}
		c := set.Spec.Template.Spec.Containers[0].SecurityContext
		var have, want []string
		for _, name := range c.Capabilities.Add {
			have = append(have, "CAP_"+string(name))
		}
		for _, n := range needs.Needs {
			want = append(want, n.Capability)
		}
		checked = slices.Equal(have, want) && slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) && !*c.AllowPrivilegeEscalation && *c.ReadOnlyRootFilesystem
		if !checked {
			t.Errorf("capabilities %v, want %v; %+v", have, want, c)
		}
	}
	if !checked {
		t.Error("there is no DaemonSet")
	}
}

// An announcement reaches the operator, whose other Pods begin when it changes; and load balancers that hold addresses may use raw sockets.
func TestChartAnnounces(t *testing.T) {
	clitest.TakesSeconds(t)
	values := filepath.Join(t.TempDir(), "values.yaml")
	clitest.Must(t, os.WriteFile(values, []byte("l4: {loadBalancer: {enabled: true, interfaces: [eth0], announce: {vrrp: [{interface: eth0, vrid: 51}]}}}"), 0o600))
	documents, err := kubelab.Documents([]byte(tool(t, "render", "-chart", absolute(t, "deploy/operator"), "-values", values, "-name", "weir")))
	clitest.Must(t, err)
	var file, mounted string
	raw := false
	for _, document := range documents {
		var object struct {
			metav1.TypeMeta
			metav1.ObjectMeta `json:"metadata"`
			Data              map[string]string
			Spec              struct{ Template corev1.PodTemplateSpec }
		}
		clitest.Must(t, json.Unmarshal(document, &object))
		pod := object.Spec.Template
		switch {
		case object.Kind == "ConfigMap" && object.Name == "weir-l4-announce":
			file = object.Data["announce.yaml"]
		case object.Kind == "DaemonSet":
			raw = slices.Contains(pod.Spec.Containers[0].SecurityContext.Capabilities.Add, "NET_RAW")
		case object.Kind == "Deployment" && object.Name == "weir":
			c := pod.Spec.Containers[0]
			for _, m := range c.VolumeMounts {
				if slices.Contains(c.Args, "--announce="+m.MountPath+"/announce.yaml") && pod.Annotations["weir-lb.github.io/l4-announce"] != "" {
					i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
					mounted = pod.Spec.Volumes[i].ConfigMap.Name
				}
			}
		}
	}
	if !strings.HasPrefix(file, "announce:\n  vrrp:\n  - interface: eth0\n") || mounted != "weir-l4-announce" || !raw {
		t.Errorf("the file %q, in the operator's Pod that of %q, raw sockets %t", file, mounted, raw)
	}
}
