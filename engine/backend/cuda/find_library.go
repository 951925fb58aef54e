package cuda

// Library is what FindLibrary finds out about this machine's cuBLASLt.
type Library struct {
	Version  string // "13.0.2"; "": there is none that can be used
	Path     string // its file; a bare name is one that the loader finds
	Device   string // on which it multiplied, unless Untried says why not: "device 0, NVIDIA H200"
	Untried  string // what the device lacks, so that no product was made; "": nothing
	Unusable string // why the library that is there cannot be used, with a remedy; "": it can
	Absent   string // where it was looked for and not found, with a remedy; "": it was found
}
