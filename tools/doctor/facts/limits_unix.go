//go:build unix

package facts

import "golang.org/x/sys/unix"

// freeBytes returns the bytes that this user can write on the disk of dir; -1: unknown.
func freeBytes(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

func mayWrite(dir string) bool { return unix.Access(dir, unix.W_OK) == nil }

// soft returns a soft limit of this process; negative: none.
func soft(resource int) int64 {
	var l unix.Rlimit
	switch err := unix.Getrlimit(resource, &l); {
	case err != nil:
		return 0
	case uint64(l.Cur) > 1<<62:
		return -1
	}
	return int64(l.Cur)
}

// read reads the limits of this process. Go's runtime has raised the limit of open files to the
// hard limit.
func (l *Limits) read() {
	l.Files, l.Data, l.Address, l.Memlock = soft(unix.RLIMIT_NOFILE), soft(unix.RLIMIT_DATA), soft(unix.RLIMIT_AS), soft(unix.RLIMIT_MEMLOCK)
}
