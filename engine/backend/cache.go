package backend

import (
	"errors"
	"fmt"
	"time"
)

// Cache is where a host backend caches packed weights in a file, so that a later start
// reads them instead of packing. The zero value disables the cache.
type Cache struct {
	Dir  string // "": no file
	Stem string // prefix of the file's name
	// Key is the digest of the source of the weights. A file with another key is stale, and so are
	// Settings.Weights: it is set without a Dir too.
	Key [32]byte
	// Must makes Open fail if there is no usable file and none can be written.
	Must bool
	// Shared means that other models may have files with this Stem in Dir. Only the file
	// itself is ever removed then.
	Shared bool
}

// CacheUse is the result of a Cache when a device was opened.
type CacheUse struct {
	Path   string // "": weights are not cached
	Loaded bool   // the Weights arena was read from the file: nothing to pack
	Why    string // why the file was not read: "there is no file yet", "it is stale: …"
	Took   time.Duration
	// Removed lists files of this model that were stale, and Others files of other
	// profiles and variants. Both are set by WriteCache.
	Removed, Others []CacheFile
}

// CacheFile is a file of packed weights.
type CacheFile struct {
	Path  string
	Bytes int64
}

// CacheError is the reason why packed weights are not cached.
type CacheError struct {
	Path string
	Err  error
}

// ErrCacheTaken means that another process is writing the same file, or has written it since
// this one started.
var ErrCacheTaken = errors.New("another process writes the same")

func (e *CacheError) Error() string {
	if errors.Is(e.Err, ErrCacheTaken) {
		return fmt.Sprintf("packed weights are not kept in %s: %v; the next start reads that", e.Path, e.Err)
	}
	return fmt.Sprintf("packed weights are not kept in %s: %v; set cpu.packedCache to a directory with free space that this process may write to, or to \"off\"", e.Path, e.Err)
}

func (e *CacheError) Unwrap() error { return e.Err }
