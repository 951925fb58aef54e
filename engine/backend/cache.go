package backend

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Cache is where a host backend keeps packed weights in a file, so that a later start
// reads them and packs nothing. The zero value keeps none.
type Cache struct {
	Dir  string // "": no file
	Stem string // what the file's name begins with
	// Key is the digest of what the weights are packed from: a file with another one is stale.
	Key [32]byte
	// Must fails Open where there is no file that can be used and none can be written.
	Must bool
	// Shared says that other models may keep files with this Stem in Dir: nothing but the
	// file itself is removed there.
	Shared bool
}

// CacheLayout is what a Layout has whose devices keep packed weights.
type CacheLayout interface {
	// CacheFile is the path of the file for a reservation's weights.
	CacheFile(Cache, Reservation) string
}

// CacheUse is what came of a Cache when a device was opened.
type CacheUse struct {
	Path   string // "": none is kept
	Loaded bool   // the Weights arena was read from the file: there is nothing to pack
	Why    string // it was not read: "there is no file yet", "it is stale: …"
	Took   time.Duration
	// Removed are files of this model that no start would have read, and Others those of
	// other profiles and variants. Both are known after Keep.
	Removed, Others []CacheFile
}

// CacheFile is a file of packed weights.
type CacheFile struct {
	Path  string
	Bytes int64
}

// CacheWriter is a Device that may keep its packed weights.
type CacheWriter interface {
	// Kept is how the Weights arena came to be. Not while Keep runs.
	CacheUse() CacheUse
	// Keep writes the file when all weights are packed, while steps may run, and puts it
	// in its place whole or not at all. ctx cuts it short. The error is a *CacheError.
	WriteCache(ctx context.Context) error
}

// CacheError says why packed weights are not kept.
type CacheError struct {
	Path string
	Err  error
}

// ErrCacheTaken is that another process writes the same file, or has since this one started.
var ErrCacheTaken = errors.New("another process writes the same")

func (e *CacheError) Error() string {
	if errors.Is(e.Err, ErrCacheTaken) {
		return fmt.Sprintf("packed weights are not kept in %s: %v; the next start reads that", e.Path, e.Err)
	}
	return fmt.Sprintf("packed weights are not kept in %s: %v; set cpu.packedCache to a directory with room that this process may write to, or to \"off\"", e.Path, e.Err)
}

func (e *CacheError) Unwrap() error { return e.Err }
