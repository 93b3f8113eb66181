package kubelab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/privilege"
)

// enter is what runs a container: a host name, a root directory that cannot be written to, a user of its own, and capabilities. Its
// arguments are the root, the host name, UID:GID, the capabilities that it has not, pairs of a directory and where it is mounted, --, and
// the command.
const enter = `set -e
root=$1 name=$2 user=$3 drop=$4; shift 4
echo "$name" >/proc/sys/kernel/hostname
mount --bind "$root" "$root"
mount -t sysfs -o ro sysfs "$root/sys"
while [ "$1" != -- ]; do mount --rbind "$1" "$root$2"; shift 2; done
shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,ro,bind "$root"
[ -n "$drop" ] || exec chroot --userspec="$user" "$root" "$@"
shell=$1; shift
exec capsh --quiet --chroot="$root" --drop="$drop" --gid="${user#*:}" --uid="${user%:*}" --shell="$shell" -- "$@"`

// prepare makes the root directory, volumes and command of a container.
func (k *Kubelet) prepare(r *Container) error {
	directory, err := os.MkdirTemp(k.plane.options.Files, "pod")
	if err != nil {
		return err
	}
	root := filepath.Join(directory, "root")
	container := &r.pod.Spec.Containers[0]
	if err := exec.Command("cp", "-al", k.image, root).Run(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, "sys"), 0o755); err != nil {
		return err
	}
	var mounts []string // pairs of a directory and where it is mounted
	for i, m := range container.VolumeMounts {
		source, err := k.volume(r, m.Name, filepath.Join(directory, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		if !strings.HasPrefix(m.MountPath, "/sys/") {
			if err := os.MkdirAll(filepath.Join(root, m.MountPath), 0o755); err != nil {
				return err
			}
		}
		mounts = append(mounts, source, m.MountPath)
	}
	environment, err := k.environment(r, container)
	if err != nil {
		return err
	}
	args := []string{"--uts", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, "sh", root, r.hostName(), r.user(), dropped(container)}
	command := container.Command
	if program := k.program(container.Image); len(command) == 0 && program != "" {
		command = []string{program}
	}
	for _, arg := range container.Args {
		command = append(command, expanded(arg, environment))
	}
	args = append(append(append(args, mounts...), "--"), command...)
	if len(command) == 0 {
		return fmt.Errorf("container %s: write its command: the entry point of the image is not read", container.Name)
	}
	r.cmd = exec.Command("unshare", args...)
	r.cmd.Env = environment
	return nil
}

// expanded replaces $(NAME) by the variable of that name.
func expanded(text string, environment []string) string {
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		text = strings.ReplaceAll(text, "$("+name+")", value)
	}
	return text
}

// hostName is that of the Pod, or of its node.
func (r *Container) hostName() string {
	if r.pod.Spec.HostNetwork {
		return node
	}
	return r.pod.Name
}

// dropped are the numbers of the capabilities that a container has not; empty: it adds none, so it is not what it is about.
func dropped(container *corev1.Container) string {
	security := container.SecurityContext
	if security == nil || security.Capabilities == nil || len(security.Capabilities.Add) == 0 {
		return ""
	}
	var kept, numbers []string
	for _, name := range security.Capabilities.Add {
		kept = append(kept, strconv.Itoa(privilege.Number("CAP_"+string(name))))
	}
	for n := range unix.CAP_LAST_CAP + 1 {
		if number := strconv.Itoa(n); !slices.Contains(kept, number) {
			numbers = append(numbers, number)
		}
	}
	return strings.Join(numbers, ",")
}

// user is UID:GID of the Pod.
func (r *Container) user() string {
	user, group := int64(0), int64(0)
	if c := r.pod.Spec.SecurityContext; c != nil && c.RunAsUser != nil {
		user, group = *c.RunAsUser, *c.RunAsUser
		if c.RunAsGroup != nil {
			group = *c.RunAsGroup
		}
	}
	return fmt.Sprintf("%d:%d", user, group)
}

// volume returns the directory of a volume, which it makes if it is the Pod's alone.
func (k *Kubelet) volume(r *Container, name, at string) (string, error) {
	for i := range r.pod.Spec.Volumes {
		v := &r.pod.Spec.Volumes[i]
		if v.Name != name {
			continue
		}
		if v.HostPath != nil {
			directory := k.options.HostPaths[v.HostPath.Path]
			if directory == "" {
				return "", fmt.Errorf("volume %s: %s of the host cannot be had", name, v.HostPath.Path)
			}
			return directory, nil
		}
		if err := os.Mkdir(at, 0o777); err != nil {
			return "", err
		}
		if err := os.Chmod(at, 0o777); err != nil { // whatever the umask
			return "", err
		}
		return at, k.fill(r, &v.VolumeSource, at)
	}
	return "", fmt.Errorf("there is no volume %s", name)
}

// fill writes the files of a volume.
func (k *Kubelet) fill(r *Container, v *corev1.VolumeSource, at string) error {
	switch {
	case v.EmptyDir != nil:
		return nil
	case v.Secret != nil:
		values, err := k.data(r, "secrets", v.Secret.SecretName)
		if err != nil {
			return err
		}
		return files(at, selected(values, v.Secret.Items))
	case v.ConfigMap != nil:
		values, err := k.texts(r, v.ConfigMap.Name)
		if err != nil {
			return err
		}
		return files(at, selected(values, v.ConfigMap.Items))
	case v.Projected != nil:
		return k.account(r, at)
	}
	return fmt.Errorf("a volume is of a kind that the kubelet does not know: %v", v)
}

// account writes the files of the Pod's service account.
func (k *Kubelet) account(r *Container, at string) error {
	token, err := k.plane.Token(r.pod.Namespace, r.pod.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(k.plane.CAFile())
	if err != nil {
		return err
	}
	return files(at, map[string][]byte{"token": []byte(token), "namespace": []byte(r.pod.Namespace), "ca.crt": authority})
}

// data reads a Secret.
func (k *Kubelet) data(r *Container, plural, name string) (map[string][]byte, error) {
	var object struct {
		Data map[string][]byte `json:"data"`
	}
	err := k.plane.Get("/api/v1/namespaces/"+r.pod.Namespace+"/"+plural+"/"+name, &object)
	return object.Data, err
}

// texts reads a ConfigMap.
func (k *Kubelet) texts(r *Container, name string) (map[string][]byte, error) {
	var object corev1.ConfigMap
	err := k.plane.Get("/api/v1/namespaces/"+r.pod.Namespace+"/configmaps/"+name, &object)
	values := map[string][]byte{}
	for key, text := range object.Data {
		values[key] = []byte(text)
	}
	return values, err
}

// selected are the items of a volume, by their paths; without items all values.
func selected(values map[string][]byte, items []corev1.KeyToPath) map[string][]byte {
	if len(items) == 0 {
		return values
	}
	chosen := map[string][]byte{}
	for _, item := range items {
		chosen[item.Path] = values[item.Key]
	}
	return chosen
}

// program is the command of an image: that of the last part of its name, without the tag.
func (k *Kubelet) program(image string) string {
	name, _, _ := strings.Cut(filepath.Base(image), ":")
	return k.options.Programs[name]
}

// listens says whether any socket is bound in the Pod's network namespace, or was since the start of its process: the kernel walks the
// connections of all namespaces for the answer.
func (r *Container) listens() bool {
	if r.listened == r.started {
		return true
	}
	r.mu.Lock()
	pid, err := r.first()
	r.mu.Unlock()
	if err != nil {
		return false
	}
	for _, protocol := range []string{"udp", "udp6", "tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, protocol))
		if err == nil && strings.Count(string(text), "\n") > 1 {
			r.listened = r.started
			return true
		}
	}
	return false
}

func files(directory string, values map[string][]byte) error {
	for name, text := range values {
		if err := os.WriteFile(filepath.Join(directory, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// environment is that of a container.
func (k *Kubelet) environment(r *Container, container *corev1.Container) ([]string, error) {
	address := k.plane.address
	all := []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "KUBERNETES_SERVICE_HOST=" + address.Addr().String(), fmt.Sprintf("KUBERNETES_SERVICE_PORT=%d", address.Port())}
	for i := range container.Env {
		e := &container.Env[i]
		value := e.Value
		if e.ValueFrom != nil {
			var err error
			if value, err = k.variable(r, e); err != nil {
				return nil, err
			}
		}
		all = append(all, e.Name+"="+value)
	}
	return all, nil
}

// variable is the value of a variable that comes from a Secret or from the Pod.
func (k *Kubelet) variable(r *Container, e *corev1.EnvVar) (string, error) {
	switch from := e.ValueFrom; {
	case from.SecretKeyRef != nil:
		secret, err := k.data(r, "secrets", from.SecretKeyRef.Name)
		return string(secret[from.SecretKeyRef.Key]), err
	case from.FieldRef != nil:
		fields := map[string]string{
			"metadata.name": r.pod.Name, "metadata.namespace": r.pod.Namespace, "spec.nodeName": node, "metadata.uid": r.uid, "status.podIP": r.Slot.Address.String(), "status.hostIP": k.plane.options.Address.String(),
		}
		if value, ok := fields[from.FieldRef.FieldPath]; ok {
			return value, nil
		}
	}
	return "", fmt.Errorf("variable %s is of a kind that the kubelet does not know", e.Name)
}

// ready runs the readiness probe; without one the process has to run.
func (r *Container) ready() bool {
	select {
	case <-r.ended:
		return false
	default:
	}
	return Probe(r, r.pod.Spec.Containers[0].ReadinessProbe) == nil
}

// Probe runs an HTTP probe of a Pod's container against its process.
func Probe(r *Container, probe *corev1.Probe) error {
	if probe == nil || probe.HTTPGet == nil {
		return nil
	}
	port := probe.HTTPGet.Port.String()
	for _, p := range r.pod.Spec.Containers[0].Ports {
		if p.Name == port {
			port = strconv.Itoa(int(p.ContainerPort))
		}
	}
	address := net.JoinHostPort(r.Slot.Address.String(), port)
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (c net.Conn, err error) {
		err = r.Slot.Host.Do(func() (err error) {
			c, err = net.DialTimeout("tcp", address, time.Second)
			return err
		})
		return c, err
	}}}
	response, err := client.Get("http://" + address + probe.HTTPGet.Path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", probe.HTTPGet.Path, response.Status, text)
	}
	return err
}

// Spec returns the Pod that the process runs.
func (r *Container) Spec() *corev1.Pod { return &r.pod }
