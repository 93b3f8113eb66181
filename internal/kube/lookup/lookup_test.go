package lookup

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-lb/weir/internal/kube/discovery"
)

// apiServer answers as an API server does whose Pods are these; proxied is what a Pod answers.
func apiServer(t *testing.T, pods []corev1.Pod, proxied func(pod string, w http.ResponseWriter)) Config {
	t.Helper()
	status := func(w http.ResponseWriter, code int, reason metav1.StatusReason) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code), Message: "not allowed"})
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch rest, isPod := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/ops/pods/"); {
		case r.Header.Get("Authorization") != "Bearer token-1":
			status(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		case isPod && strings.HasSuffix(rest, ":13478/proxy/api/v1/configs/media/udp"):
			pod, _, _ := strings.Cut(rest, ":")
			proxied(pod, w)
		case r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("labelSelector") == Label:
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: pods})
		default:
			status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return Config{Kubeconfig: kubeconfig(t, server.URL, "token-1")}
}

func kubeconfig(t *testing.T, url, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}], "users": [{"name": "u", "user": {"token": %q}}]}`, url, token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func pod(name string, phase corev1.PodPhase, ready bool) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ops"}, Status: corev1.PodStatus{Phase: phase}}
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

// The Pods that are ready are tried first, and the next one if one does not answer; what does not run is not tried.
func TestGateway(t *testing.T) {
	var tried []string
	c := apiServer(t, []corev1.Pod{pod("a", corev1.PodRunning, false), pod("b", corev1.PodFailed, true), pod("d", corev1.PodRunning, true), pod("c", corev1.PodRunning, true)},
		func(pod string, w http.ResponseWriter) {
			if tried = append(tried, pod); pod != "d" {
				http.Error(w, "nothing listens", http.StatusServiceUnavailable)
				return
			}
			w.Write([]byte(`{"n":1}`))
		})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got, err := Gateway(ctx, c, discovery.ID{Namespace: "media", Name: "udp"}); err != nil || string(got) != `{"n":1}` || strings.Join(tried, "") != "cd" {
		t.Errorf("%s, %v, tried %q", got, err, tried)
	}
}

// What cannot be found or read is an error with its remedy, and is bounded.
func TestGatewayErrors(t *testing.T) {
	running := []corev1.Pod{pod("a", corev1.PodRunning, true)}
	id := discovery.ID{Namespace: "media", Name: "udp"}
	forbidden := apiServer(t, running, nil)
	forbidden.Kubeconfig = kubeconfig(t, "https://127.0.0.1:1", "x")
	noRight := apiServer(t, running, nil)
	text, err := os.ReadFile(noRight.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(noRight.Kubeconfig, []byte(strings.ReplaceAll(string(text), "token-1", "token-2")), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		config Config
		want   string
	}{
		"no kubeconfig": {Config{Kubeconfig: filepath.Join(t.TempDir(), "none")}, "Give --kubeconfig"},
		"no context":    {Config{Kubeconfig: forbidden.Kubeconfig, Context: "other"}, "context"},
		"no server":     {forbidden, "connection refused"},
		"no right":      {noRight, "it needs the right to list on pods"},
		"no Pod":        {apiServer(t, nil, nil), "no Pod with the label"},
		"not found":     {apiServer(t, running, func(_ string, w http.ResponseWriter) { http.Error(w, "{}", http.StatusNotFound) }), discovery.ErrNotFound.Error()},
		"too long":      {apiServer(t, running, func(_ string, w http.ResponseWriter) { w.Write(make([]byte, discovery.MaxConfig+2)) }), "longer than"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := Gateway(ctx, test.config, id); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
		cancel()
	}
}
