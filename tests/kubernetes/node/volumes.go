package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mountVolumes makes a folder for each volume.
func (p *pod) mountVolumes() error {
	owner := -1
	if s := p.object.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		owner = int(*s.FSGroup)
	}
	for _, v := range p.object.Spec.Volumes {
		dir := filepath.Join(p.dir, "volumes", v.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		p.volumes[v.Name] = dir
		var err error
		switch {
		case v.EmptyDir != nil:
			if v.EmptyDir.Medium == core.StorageMediumMemory {
				size := ""
				if v.EmptyDir.SizeLimit != nil {
					size = "size=" + strconv.FormatInt(v.EmptyDir.SizeLimit.Value(), 10)
				}
				err = syscall.Mount("tmpfs", dir, "tmpfs", 0, size)
			}
			if err == nil {
				err = os.Chown(dir, -1, owner)
			}
			if err == nil {
				err = os.Chmod(dir, 0o2777)
			}
		case v.ConfigMap != nil:
			err = p.writeConfig(v.Name, v.ConfigMap.Name)
		case v.Secret != nil:
			var s *core.Secret
			if s, err = p.node.client.CoreV1().Secrets(p.object.Namespace).Get(context.Background(), v.Secret.SecretName, meta.GetOptions{}); err == nil {
				err = writeAtomic(dir, s.Data)
			}
		case v.HostPath != nil:
			p.volumes[v.Name] = v.HostPath.Path
		case v.PersistentVolumeClaim != nil:
			p.volumes[v.Name], err = p.claim(v.PersistentVolumeClaim.ClaimName)
		case v.Projected != nil && strings.HasPrefix(v.Name, "kube-api-access-"): // a token, which no test needs
		default:
			err = fmt.Errorf("a kind that this node does not know")
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// claim returns the folder of a claim, whose volume must be of kind hostPath.
func (p *pod) claim(name string) (string, error) {
	api := p.node.client.CoreV1()
	c, err := api.PersistentVolumeClaims(p.object.Namespace).Get(context.Background(), name, meta.GetOptions{})
	if err != nil {
		return "", err
	}
	v, err := api.PersistentVolumes().Get(context.Background(), c.Spec.VolumeName, meta.GetOptions{})
	if err != nil {
		return "", err
	}
	if v.Spec.HostPath == nil {
		return "", fmt.Errorf("claim %s: its volume is no hostPath", name)
	}
	return v.Spec.HostPath.Path, nil
}

// writeConfig writes a ConfigMap into its volume.
func (p *pod) writeConfig(volume, name string) error {
	o, ok, _ := p.node.configs.GetByKey(p.object.Namespace + "/" + name)
	if !ok {
		return fmt.Errorf("there is no config map %s", name)
	}
	files := map[string][]byte{}
	for k, v := range o.(*core.ConfigMap).Data {
		files[k] = []byte(v)
	}
	return writeAtomic(p.volumes[volume], files)
}

// refresh writes changed ConfigMaps again.
func (p *pod) refresh() {
	for _, v := range p.object.Spec.Volumes {
		if v.ConfigMap != nil && p.volumes[v.Name] != "" {
			if err := p.writeConfig(v.Name, v.ConfigMap.Name); err != nil {
				fmt.Fprintf(os.Stderr, "node %s: volume %s: %v\n", p.node.options.Name, v.Name, err)
			}
		}
	}
}

// writeAtomic writes files as the kubelet does: into a new folder, to which the link ..data is
// switched; each file is a link through ..data. It does nothing where the files are the same.
func writeAtomic(dir string, files map[string][]byte) error {
	data := filepath.Join(dir, "..data")
	if old, err := os.ReadDir(data); err == nil && len(old) == len(files) {
		same := true
		for name, text := range files {
			was, err := os.ReadFile(filepath.Join(data, name))
			same = same && err == nil && string(was) == string(text)
		}
		if same {
			return nil
		}
	}
	fresh := ".." + time.Now().UTC().Format("2006_01_02_15_04_05.000000000")
	if err := os.Mkdir(filepath.Join(dir, fresh), 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, fresh, name), text, 0o644); err != nil {
			return err
		}
	}
	old, _ := os.Readlink(data)
	if err := os.Symlink(fresh, data+"_tmp"); err != nil {
		return err
	}
	if err := os.Rename(data+"_tmp", data); err != nil {
		return err
	}
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	if old != "" {
		return os.RemoveAll(filepath.Join(dir, old))
	}
	return nil
}

// root makes the root folder of a container: the host's /usr with what its links lead to, /dev, /proc and control groups, the
// image's program, names and addresses, and the volumes. The container's user owns nothing of it.
func (c *container) root(program string) (string, error) {
	root := filepath.Join(c.pod.dir, "roots", c.spec.Name)
	if _, err := os.Stat(root); err == nil {
		return root, nil // of an earlier start
	}
	for _, d := range []string{"etc", "tmp", "var"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return "", err
		}
	}
	for _, l := range []string{"bin", "lib", "lib64", "sbin"} {
		if err := os.Symlink("usr/"+l, filepath.Join(root, l)); err != nil {
			return "", err
		}
	}
	hosts := fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", c.pod.status.PodIP, c.pod.object.Name)
	resolv := fmt.Sprintf("nameserver %s\nsearch %s.svc.%s svc.%s %s\noptions ndots:5\n", c.pod.node.network.gateway, c.pod.object.Namespace, domain, domain, domain)
	for name, text := range map[string]string{
		"etc/hosts": hosts, "etc/resolv.conf": resolv, "etc/passwd": "root:x:0:0::/:/bin/sh\nvapp:x:65532:65532::/tmp:/\n", "etc/nsswitch.conf": "hosts: files dns\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	for _, m := range []struct {
		from, to string
		readOnly bool
	}{{"/usr", "usr", true}, {"/dev", "dev", false}, {"/proc", "proc", false}, {"/sys", "sys", true}, {"/etc/alternatives", "etc/alternatives", true}, {program, "image", true}} {
		if err := c.bind(root, m.from, m.to, m.readOnly); err != nil {
			return "", err
		}
	}
	for _, m := range c.spec.VolumeMounts {
		from, ok := c.pod.volumes[m.Name]
		if !ok {
			return "", fmt.Errorf("there is no volume %s", m.Name)
		}
		if strings.HasPrefix(m.Name, "kube-api-access-") {
			continue
		}
		if err := c.bind(root, filepath.Join(from, m.SubPath), m.MountPath, m.ReadOnly); err != nil {
			return "", err
		}
	}
	return root, nil
}

// bind mounts a file or folder of the host, with what is mounted below it.
func (c *container) bind(root, from, to string, readOnly bool) error {
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	at := filepath.Join(root, to)
	if st.IsDir() {
		err = os.MkdirAll(at, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil {
		err = os.WriteFile(at, nil, 0o755)
	}
	if err != nil {
		return err
	}
	if err := syscall.Mount(from, at, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", to, err)
	}
	if readOnly {
		if err := syscall.Mount("", at, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("mount %s read-only: %w", to, err)
		}
	}
	return nil
}

// unmountAll removes the mounts and folders of the pod.
func (p *pod) unmountAll() {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	lines := strings.Split(string(mounts), "\n")
	for i := len(lines) - 1; i >= 0; i-- { // the last mounted first
		if w := strings.Fields(lines[i]); len(w) > 1 && strings.HasPrefix(w[1], p.dir+"/") {
			_ = syscall.Unmount(w[1], syscall.MNT_DETACH)
		}
	}
	// Without a mount left: else this would remove files of the host.
	if mounts, err = os.ReadFile("/proc/self/mounts"); err == nil && !strings.Contains(string(mounts), " "+p.dir+"/") {
		_ = os.RemoveAll(p.dir)
	}
}
