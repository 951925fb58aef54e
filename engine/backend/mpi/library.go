package mpi

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
)

// soname is the library of Open MPI 3 to 5 for C.
const soname = "libmpi.so.40"

// install is the remedy for a library that is absent or cannot be used.
const install = "install Open MPI 4 or 5 (Debian, Ubuntu: apt-get install openmpi-bin; Fedora: dnf install openmpi) or name its libmpi.so.40"

// places returns where distributions keep the library besides the loader's path.
func places() []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	var out []string
	for _, dir := range []string{
		"/usr/lib/" + triplet + "/openmpi/lib", // Debian
		"/usr/lib64/openmpi/lib",               // Fedora
		"/usr/lib64/mpi/gcc/openmpi5/lib64",    // openSUSE
		"/usr/lib64/mpi/gcc/openmpi4/lib64",
		"/usr/local/lib", "/opt/openmpi/lib",
	} {
		out = append(out, dir+"/"+soname)
	}
	return out
}

// checkVersion returns the short name of a library of Open MPI 4 or 5, from the text of MPI_Get_library_version. Another
// library is refused by its name: in MPICH and its descendants handles are numbers, in Open MPI they are pointers.
func checkVersion(path, text string) (string, error) {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	rest, ours := strings.CutPrefix(line, "Open MPI v")
	if !ours {
		return "", &LibraryError{path, fmt.Sprintf("it is %s, not Open MPI", foreignName(line)),
			install + ", and start the ranks by Open MPI's mpirun"}
	}
	version, _, _ := strings.Cut(rest, ",")
	first, _, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(first)
	switch {
	case err != nil:
		return "", &LibraryError{path, fmt.Sprintf("it gives its version as %q", line), install}
	case major < 4:
		return "", &LibraryError{path, fmt.Sprintf("it is Open MPI %s, which is too old", version), install}
	case major > 5:
		return "", &LibraryError{path, fmt.Sprintf("it is Open MPI %s, whose binary interface is not known here", version), install}
	}
	return "Open MPI " + version, nil
}

// foreignName returns the name of another MPI from the first line of its version.
func foreignName(line string) string {
	for _, k := range [][2]string{{"MVAPICH", "MVAPICH"}, {"Intel(R) MPI", "Intel MPI"}, {"MPICH", "MPICH"}} {
		if strings.Contains(line, k[0]) {
			return fmt.Sprintf("%s (%s)", k[1], strings.Join(strings.Fields(line), " "))
		}
	}
	return fmt.Sprintf("%q", line)
}

// absent returns the error for a library that is in none of the places, nor on the loader's path.
func absent(places []string) error {
	return &LibraryError{soname, "it is not on the loader's path, nor at " + strings.Join(places, ", "), install}
}
