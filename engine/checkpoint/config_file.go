package checkpoint

import (
	"os"
	"path/filepath"
)

// ReadConfig reads the config.json at path, or the one in directory path, with the edits.
func (e Edits) ReadConfig(path string) (Config, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	raw, err := readSmall(path, maxConfig)
	if err != nil {
		return Config{}, err
	}
	return e.Parse(path, raw)
}
