package tcp

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
)

// manifest is what the test looks at of a Kubernetes object.
type manifest struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		Type     string
		Replicas int
		Selector any
		Ports    []struct {
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				SecurityContext struct {
					RunAsNonRoot bool `yaml:"runAsNonRoot"`
				} `yaml:"securityContext"`
				Containers []manifestContainer
				Volumes    []struct{ Name string }
			}
		}
	}
}

type manifestContainer struct {
	Command, Args []string
	Env           []struct{ Name string }
	Ports         []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Resources       struct{ Requests, Limits map[string]string }
	SecurityContext struct {
		Escalation   *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities struct{ Drop []string }
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// The example for a cluster: its parts fit each other, and its programs, run with the arguments that stand there, find
// each other and count what they hold.
func TestTCPKubernetesExampleRuns(t *testing.T) {
	clitest.TakesSeconds(t)
	text, err := os.ReadFile("../../../examples/tcp/kubernetes.yaml")
	clitest.Must(t, err)
	if regexp.MustCompile(`[:-] [&*][a-z]`).Match(text) {
		t.Error("an anchor ends with its document: kubectl would not know it in the next")
	}
	deployments, services := map[string]manifestContainer{}, map[string]manifest{}
	for reader := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var m manifest
		if err := reader.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if m.Kind != "Namespace" && m.Metadata.Namespace != "demos" {
			t.Errorf("%s %s is in namespace %q", m.Kind, m.Metadata.Name, m.Metadata.Namespace)
		}
		switch m.Kind {
		case "Service":
			services[m.Metadata.Name] = m
		case "Deployment":
			pod := m.Spec.Template.Spec
			c := pod.Containers[0]
			if m.Spec.Replicas != 1 || !pod.SecurityContext.RunAsNonRoot || !c.SecurityContext.ReadOnly || c.SecurityContext.Escalation == nil ||
				*c.SecurityContext.Escalation || len(c.SecurityContext.Capabilities.Drop) != 1 || c.Resources.Limits["memory"] == "" || c.Resources.Requests["cpu"] == "" {
				t.Errorf("%s: %+v", m.Metadata.Name, c)
			}
			if len(c.VolumeMounts) != 1 || len(pod.Volumes) != 1 || c.VolumeMounts[0].Name != pod.Volumes[0].Name {
				t.Errorf("%s: mounts %v of %v", m.Metadata.Name, c.VolumeMounts, pod.Volumes)
			}
			deployments[m.Spec.Template.Metadata.Labels["app"]] = c
		}
	}
	if len(deployments) != 3 || len(services) != 3 {
		t.Fatalf("%d deployments, %d services", len(deployments), len(services))
	}
	for name, s := range services {
		app, _ := s.Spec.Selector.(map[string]any)["app"].(string)
		found := false
		for _, p := range deployments[app].Ports {
			found = found || p.Name == s.Spec.Ports[0].TargetPort
		}
		if s.Spec.Type != "LoadBalancer" || !found {
			t.Errorf("service %s: type %s, no port %q of %s", name, s.Spec.Type, s.Spec.Ports[0].TargetPort, app)
		}
	}

	token := t.TempDir() + "/token"
	clitest.Must(t, os.WriteFile(token, []byte("0123456789abcdef"), 0o400))
	here := []string{ // what the cluster provides, on this machine
		"/run/tcp-stats/token", token, "--connections=100000", "--connections=1000", "--connections=10000", "--connections=1000",
		"--listen=:8080", "--listen=127.0.0.1:0", "--listen=:10000", "--listen=127.0.0.1:0", "--expect=100000", "--expect=2000",
	}
	run := func(app, pod string) *clitest.LockedBuffer {
		c := deployments[app]
		if c.Command[0] != "/weir" || c.Command[1] != "tcp" {
			t.Fatalf("%s runs %q", app, c.Command)
		}
		args := strings.Split(strings.NewReplacer(append(here, "$(POD_NAME)", pod)...).Replace(strings.Join(append(c.Command[2:3:3], c.Args...), "\x00")), "\x00")
		_, _, notes := tcpProcess(t, (*exec.Cmd).Start, args...)
		return notes
	}
	at := clitest.WaitFor(t, run("tcp-server-stats", ""), `http://(127\.0\.0\.1:\d+)/`)[1]
	here = append(here, "tcp-server-stats-svc:80", at)
	target := clitest.WaitFor(t, run("tcp-server", "tcp-server-0"), `listening on (127.0.0.1:\d+)`)[1]
	here = append(here, "tcp-server-internal-svc:10000", target)
	run("tcp-client", "tcp-client-a")
	run("tcp-client", "tcp-client-b")
	st := statsState(t, "x:0123456789abcdef@"+at, func(s *stats.State) bool {
		return s.Connected == 2000 && s.Clients.Live == 2 && s.Difference != nil && *s.Difference == 0 && len(s.Matrix.Rows) == 2
	})
	if st.ServerRows[0].Name != "tcp-server-0" || st.ClientRows[1].Name != "tcp-client-b" || st.Expected != 2000 {
		t.Errorf("servers %+v, clients %+v", st.ServerRows, st.ClientRows)
	}
}
