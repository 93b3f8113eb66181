package control

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/config/configtest"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// load takes a file as far as a snapshot, as weir check does.
func load(name string, text []byte) (*lb.Snapshot, error) {
	spec, document, err := config.Decode[lb.Spec](name, text)
	if err != nil {
		return nil, err
	}
	snapshot, err := lb.Compile(spec, nil, lb.CheckCaps())
	return snapshot, Locate(err, document)
}

// Each bad file names in its first line the error it must cause: line:column: key: what; remedy.
func TestBadConfigurations(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 45 {
		t.Fatalf("%d bad files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(text), "\n")
			want, ok := strings.CutPrefix(first, "# want: ")
			if !ok {
				t.Fatal("the first line is not `# want: …`")
			}
			_, err = load("f", text)
			if err == nil {
				t.Fatalf("no error, want %s", want)
			}
			if several := config.Errors(nil); errors.As(err, &several) {
				err = several[0] // the same mistake, or what follows of it
			}
			if got := strings.TrimPrefix(err.Error(), "f:"); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if !strings.Contains(want, "; ") && !strings.Contains(want, "did you mean") {
				t.Errorf("no remedy in %q", want)
			}
		})
	}
}

func TestExamplesCompile(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "services:") || !strings.Contains(string(text), "vips:") {
			continue // another part's example, loaded by its own test
		}
		snapshot, err := load(file, text)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, service := range snapshot.Services {
			if service.Select(1) == nil {
				t.Errorf("%s: service %s sends nothing anywhere", file, service.Name)
			}
		}
	}
}

// The secrets of a spec are in no description.
func TestDescribeHidesSecrets(t *testing.T) {
	const secret = "5ec2e700112233445566778899aabbcc"
	snapshot, err := load("f", []byte(`hash_key: `+secret+`
services:
- name: s
  vips: [{address: 192.0.2.1, protocol: udp, port: 1}]
  cid: {protocols: [dtls12], layouts: [{length: 8, owner: {offset: 0, bits: 8}, mask_key: `+secret+`}]}
  backends: [{name: a, address: 10.0.0.1, nodes: [1]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if text := encode(t, Describe(snapshot, nil)); strings.Contains(text, secret[:8]) || !strings.Contains(text, "masked") {
		t.Errorf("status: %s", text)
	}
}

// Whatever bytes come, decoding and compiling end with a snapshot or one located error.
func FuzzLoad(f *testing.F) {
	configtest.Seeds(f, "testdata/bad/*.yaml", "../../examples/*.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<14 {
			return
		}
		snapshot, err := load("f", text)
		if (snapshot == nil) == (err == nil) {
			t.Fatalf("snapshot %v, error %v", snapshot, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "f:") {
			t.Fatalf("error without place: %v", err)
		}
	})
}
