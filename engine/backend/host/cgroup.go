package host

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// group is the memory of one control group, in bytes; limit 0 means no limit.
type group struct {
	path        string
	limit, used int64
}

// unlimited is the least value of "no limit". Version 1 prints PAGE_COUNTER_MAX in bytes.
const unlimited = 1 << 60

// groups lists the memory groups of this process, the innermost first. In a container, the
// mount's root may be its own group while /proc/self/cgroup still has the path of the host.
// So groups skips paths that do not exist and tries their parents up to the root.
func groups(root fs.FS) []group {
	var gs []group
	v2, v1 := paths(root, "memory")
	for _, dir := range upwards(v2) {
		at := "sys/fs/cgroup" + dir + "/"
		if g, ok := readGroup(root, at, "memory.max", "memory.current", ""); ok {
			g.path = dir
			gs = append(gs, g)
		}
	}
	for _, dir := range upwards(v1) {
		at := "sys/fs/cgroup/memory" + dir + "/"
		if g, ok := readGroup(root, at, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"); ok {
			g.path = dir
			gs = append(gs, g)
		}
	}
	return gs
}

// readGroup reads a group in the directory at. total is the prefix of the names in
// memory.stat that include child groups.
func readGroup(root fs.FS, at, limit, used, total string) (group, bool) {
	s := text(root, at+limit)
	if s == "" {
		return group{}, false
	}
	var g group
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n < unlimited {
		g.limit = n
	}
	n, _ := strconv.ParseInt(text(root, at+used), 10, 64)
	stat := fields(text(root, at+"memory.stat"))
	g.used = max(0, n-stat[total+"inactive_file"]-stat[total+"active_file"])
	return g, true
}

// paths returns the group of this process under version 2 and, for one
// controller, under version 1; "-" stands for none.
func paths(root fs.FS, controller string) (v2, v1 string) {
	v2, v1 = "-", "-"
	for line := range strings.Lines(text(root, "proc/self/cgroup")) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		list, dir, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		if id == "0" && list == "" {
			v2 = dir
		}
		for c := range strings.SplitSeq(list, ",") {
			if c == controller {
				v1 = dir
			}
		}
	}
	return v2, v1
}

// upwards lists "/a/b", "/a" and "" for "/a/b".
func upwards(dir string) []string {
	if dir == "-" {
		return nil
	}
	var out []string
	for dir = path.Clean("/" + dir); dir != "/"; dir = path.Dir(dir) {
		out = append(out, dir)
	}
	return append(out, "")
}

// quota returns the lowest CPU quota of the groups in CPUs, rounded up; 0: no quota.
func quota(root fs.FS) int {
	least := 0
	see := func(quota, period int64) {
		if quota <= 0 || period <= 0 {
			return
		}
		n := int(min((quota+period-1)/period, 1<<20))
		if least == 0 || n < least {
			least = n
		}
	}
	v2, v1 := paths(root, "cpu")
	for _, dir := range upwards(v2) {
		w := strings.Fields(text(root, "sys/fs/cgroup"+dir+"/cpu.max"))
		if len(w) == 2 {
			see(number(w[0]), number(w[1]))
		}
	}
	for _, dir := range upwards(v1) {
		for _, mount := range []string{"cpu", "cpu,cpuacct"} {
			at := "sys/fs/cgroup/" + mount + dir + "/"
			see(number(text(root, at+"cpu.cfs_quota_us")), number(text(root, at+"cpu.cfs_period_us")))
		}
	}
	return least
}

// number reads a count; other text ("max", "") is 0.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > unlimited {
		return 0
	}
	return n
}
