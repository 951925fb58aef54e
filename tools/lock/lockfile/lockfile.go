// Package lockfile reads and writes lock files, and makes the lock of a prepared profile with the
// hashes of the model's files. It must not decide what to serve: the command compares locks and
// acts on differences. Start reading at Hasher.Lock.
package lockfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"vapp.dev/appliance"
	"vapp.dev/tools/lock"
)

// Read returns the lock of the profile at path profile; nil where it has none.
func Read(profile string) (*lock.Lock, error) {
	name := lock.FileOf(profile)
	st, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, pathError(name, err)
	case !st.Mode().IsRegular() || st.Size() > lock.MaxBytes:
		return nil, &lock.Error{File: name, Reason: fmt.Sprintf("not a file of at most %d bytes", lock.MaxBytes)}
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, pathError(name, err)
	}
	return lock.Parse(name, data)
}

// Replace writes a file atomically: through a temporary file in the same folder.
func Replace(name string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return pathError(name, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return pathError(name, err)
	}
	return os.Rename(f.Name(), name)
}

// Lock makes the lock of p, which was prepared with these flags by this version of vapp. The hash of a file
// whose size and time equal those in old is taken from there; old may be nil.
func (h *Hasher) Lock(ctx context.Context, p *appliance.Prepared, old *lock.Lock, flags lock.Flags, version string) (*lock.Lock, error) {
	files, err := modelFiles(p)
	if err != nil {
		return nil, err
	}
	hashed, err := h.files(ctx, files, old)
	if err != nil {
		return nil, err
	}
	return lock.Of(lock.Inputs{Vapp: version, Profile: p.Profile, Plan: p.Plan, Flags: flags, Files: hashed})
}

// pathError returns err with the path in front and without the name of the system call.
func pathError(path string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}
