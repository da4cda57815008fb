package localkafka

import (
	"fmt"
	"io"
	"os"
)

// readFrom returns the file's bytes from that position on.
func readFrom(path string, from int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return io.ReadAll(f)
}
