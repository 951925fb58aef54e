package checkpoint

import (
	"os"
	"path/filepath"
)

// ReadConfig reads a config.json: the file at path, or the one in the directory
// path.
func ReadConfig(path string) (Config, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	raw, err := readSmall(path, maxConfig)
	if err != nil {
		return Config{}, err
	}
	return ParseConfig(path, raw)
}
