package lookup

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weir-lb/weir/internal/kube/discovery"
)

// A watch goes to a Pod that answers, with the name of the node, and so does a reading.
func TestDial(t *testing.T) {
	service := discovery.NewServer(discovery.ServerOptions{Patch: func(config []byte, node string) []byte {
		return []byte(strings.ReplaceAll(string(config), "NODE", node))
	}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- service.Serve(ctx, listener) }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	gone, answers := pod("a", corev1.PodRunning, true), pod("b", corev1.PodRunning, true)
	gone.Status.PodIP, answers.Status.PodIP = "127.0.0.2", "127.0.0.1"
	config := apiServer(t, []corev1.Pod{gone, answers}, func(string, http.ResponseWriter) { t.Error("the proxy of the API server was used") })
	config.Port, _ = strconv.Atoi(port)

	id := discovery.ID{Namespace: "media", Name: "udp"}
	w := &discovery.Watcher{ID: id, Node: "n1", Dial: config.Dial, Service: "k8s"}
	received, done := make(chan string, 8), make(chan error, 1)
	go func() { done <- w.Run(ctx, func(config []byte) { received <- string(config) }) }()
	for _, text := range []string{`{"at":"NODE"}`, `{"at":"NODE","n":2}`} {
		if err := service.Set(id, []byte(text)); err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(text, "NODE", "n1")
		select {
		case got := <-received:
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s is not received: %+v", text, w.Status())
		}
		if got, err := config.Get(ctx, id, "n1"); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if s := w.Status(); !s.Connected || s.Service != "k8s" || w.URL() != "k8s://media/udp" {
		t.Errorf("%+v, %s", s, w.URL())
	}
	cancel()
	for _, ended := range []chan error{done, served} {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// What hinders a watch is an error with its remedy.
func TestDialErrors(t *testing.T) {
	for want, config := range map[string]Config{
		"no Pod with the label":                    apiServer(t, nil, nil),
		"which API server?":                        {Kubeconfig: "/none"},
		"Pod ops/a: it has no address yet":         apiServer(t, []corev1.Pod{pod("a", corev1.PodRunning, true)}, nil),
		"no Pod with the label " + Label + " runs": apiServer(t, []corev1.Pod{pod("a", corev1.PodFailed, true)}, nil),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := config.Dial(ctx, "/x", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		cancel()
	}
}
