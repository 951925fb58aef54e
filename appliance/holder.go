package appliance

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"vapp.dev/schema"
)

// maxTable bounds how much is read of a table of sockets.
const maxTable = 16 << 20

// socket is a listening TCP socket of this machine.
type socket struct {
	at    netip.AddrPort
	uid   int
	inode string
}

// sockets returns the listening TCP sockets of a Linux system; root is "/". Without /proc there are
// none.
func sockets(root fs.FS) []socket {
	var out []socket
	for _, name := range []string{"proc/net/tcp", "proc/net/tcp6"} {
		text, err := fs.ReadFile(root, name)
		if err != nil || len(text) > maxTable {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if s, ok := parseSocket(line); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// parseSocket reads a line of /proc/net/tcp; ok is false unless the socket listens.
func parseSocket(line string) (s socket, ok bool) {
	const listen = "0A"
	w := strings.Fields(line)
	if len(w) < 10 || w[3] != listen {
		return s, false
	}
	ip, port, _ := strings.Cut(w[1], ":")
	n, err := strconv.ParseUint(port, 16, 16)
	raw, bad := hex.DecodeString(ip)
	if err != nil || bad != nil || len(raw) != 4 && len(raw) != 16 {
		return s, false
	}
	for i := 0; i < len(raw); i += 4 { // 32-bit words in the byte order of the machine, little-endian
		raw[i], raw[i+1], raw[i+2], raw[i+3] = raw[i+3], raw[i+2], raw[i+1], raw[i]
	}
	addr, _ := netip.AddrFromSlice(raw)
	uid, err := strconv.Atoi(w[7])
	if err != nil {
		return s, false
	}
	return socket{netip.AddrPortFrom(addr.Unmap(), uint16(n)), uid, w[9]}, true
}

// holds reports whether the socket keeps others from listening at an address; an invalid one is
// every address.
func (s socket) holds(at netip.Addr) bool {
	return !at.IsValid() || s.at.Addr() == at.Unmap() || s.at.Addr().IsUnspecified() || at.IsUnspecified()
}

// PortHolder returns in words which process listens at a port of an address, and the next port that
// none listens at. It is "" where the system does not say. at is invalid for every address.
func PortHolder(at netip.Addr, port int) (who string, free int) {
	return portHolder(os.DirFS("/"), at, port)
}

func portHolder(root fs.FS, at netip.Addr, port int) (who string, free int) {
	all := sockets(root)
	taken := map[int]bool{port: true}
	for _, s := range all {
		if s.holds(at) {
			taken[int(s.at.Port())] = true
		}
		if who == "" && int(s.at.Port()) == port && s.holds(at) {
			who = owner(root, s)
		}
	}
	for free = port + 1; taken[free]; {
		free++
	}
	if free > 65535 {
		free = 0
	}
	return who, free
}

// owner returns the process of a socket in words, by the open files of every process that this user
// may see. It prints no arguments, because they may contain keys.
func owner(root fs.FS, s socket) string {
	procs, _ := fs.ReadDir(root, "proc") // without it, only the user is known
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		dir := "proc/" + p.Name()
		files, err := fs.ReadDir(root, dir+"/fd")
		if err != nil {
			continue
		}
		for _, f := range files {
			if to, err := fs.ReadLink(root, dir+"/fd/"+f.Name()); err == nil && to == "socket:["+s.inode+"]" {
				return processText(root, dir, pid)
			}
		}
	}
	return fmt.Sprintf("a process of the user %d", s.uid)
}

// processText returns "vapp (process 12)".
func processText(root fs.FS, dir string, pid int) string {
	name, err := fs.ReadFile(root, dir+"/comm")
	text := strings.TrimSpace(string(name))
	switch {
	case pid == os.Getpid():
		return fmt.Sprintf("this process (%d)", pid)
	case err != nil || text == "":
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("%s (process %d)", clip(schema.OneLine(text)), pid)
}
