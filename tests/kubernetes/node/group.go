package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	core "k8s.io/api/core/v1"
)

const groups = "/sys/fs/cgroup"

// group is the control group of a pod, of version 1 (a folder in each controller's tree) or 2.
type group struct{ paths []string }

// newGroup makes a group with the sums of the containers' limits.
func newGroup(name string, containers []core.Container) (group, error) {
	var memory, milli int64
	for _, c := range containers {
		memory += c.Resources.Limits.Memory().Value()
		milli += c.Resources.Limits.Cpu().MilliValue()
	}
	const period = 100_000 // µs
	var g group
	set := func(path string, files map[string]string) error {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("control group: %w", err)
		}
		g.paths = append(g.paths, path)
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o644); err != nil {
				return fmt.Errorf("control group: %w", err)
			}
		}
		return nil
	}
	limit := func(name string, n int64, text string) map[string]string {
		if n == 0 {
			return nil
		}
		return map[string]string{name: text}
	}
	quota := strconv.FormatInt(milli*period/1000, 10)
	if _, err := os.Stat(groups + "/cgroup.controllers"); err == nil {
		files := limit("memory.max", memory, strconv.FormatInt(memory, 10))
		if milli > 0 {
			if files == nil {
				files = map[string]string{}
			}
			files["cpu.max"] = fmt.Sprintf("%s %d", quota, period)
		}
		return g, set(filepath.Join(groups, name), files)
	}
	if err := set(filepath.Join(groups, "memory", name), limit("memory.limit_in_bytes", memory, strconv.FormatInt(memory, 10))); err != nil {
		return g, err
	}
	return g, set(filepath.Join(groups, "cpu", name), limit("cpu.cfs_quota_us", milli, quota))
}

// kill ends every process of the group.
func (g group) kill() {
	if len(g.paths) == 0 {
		return
	}
	text, _ := os.ReadFile(filepath.Join(g.paths[0], "cgroup.procs"))
	for _, line := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(line); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (g group) remove() {
	for _, p := range g.paths {
		_ = os.Remove(p) // one with processes stays; removeGroups takes it later
	}
}

// removeGroups removes the groups that a process of this package has left.
func removeGroups(pid int) {
	for _, at := range []string{groups, groups + "/memory", groups + "/cpu"} {
		list, _ := filepath.Glob(filepath.Join(at, fmt.Sprintf("vp%d-*", pid)))
		for _, p := range list {
			group{[]string{p}}.kill()
			_ = os.Remove(p)
		}
	}
}
