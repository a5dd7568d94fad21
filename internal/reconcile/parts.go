package reconcile

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

const (
	// partsOf is the number of parts on each side. A part of ten million lines has about 80,000.
	partsOf = 128
	// partBuffer is how much each part buffers before it writes.
	partBuffer = 8 << 10
)

// parts stores values on disk, divided by a hash of their key. Its files are unlinked and readable only by this
// process, so that they disappear with it, however it ends.
type parts[T any] struct {
	files [partsOf]*os.File
	bufs  [partsOf]*bufio.Writer
	encs  [partsOf]*gob.Encoder
}

func newParts[T any](dir string) (*parts[T], error) {
	p := &parts[T]{}
	for i := range p.files {
		f, err := os.CreateTemp(dir, "reconcile-*")
		if err != nil {
			p.close()
			return nil, unkept(err)
		}
		_ = os.Remove(f.Name()) // if an open file can't be removed, close does it
		p.files[i], p.bufs[i] = f, bufio.NewWriterSize(f, partBuffer)
		p.encs[i] = gob.NewEncoder(p.bufs[i])
	}
	return p, nil
}

func unkept(err error) error {
	return fmt.Errorf("keeping the report and the records in temporary files; $TMPDIR says where they go: %w", err)
}

// put stores a value in its key's part.
func (p *parts[T]) put(key string, v T) error {
	h := fnv.New32a()
	_, _ = io.WriteString(h, key)
	if err := p.encs[h.Sum32()%partsOf].Encode(v); err != nil {
		return unkept(err)
	}
	return nil
}

// each visits the values of one part, in the order in which they were stored.
func (p *parts[T]) each(part int, visit func(T) error) error {
	if err := p.bufs[part].Flush(); err != nil {
		return unkept(err)
	}
	if _, err := p.files[part].Seek(0, io.SeekStart); err != nil {
		return unkept(err)
	}
	for dec := gob.NewDecoder(bufio.NewReaderSize(p.files[part], readBuffer)); ; {
		var v T
		switch err := dec.Decode(&v); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unkept(err)
		}
		if err := visit(v); err != nil {
			return err
		}
	}
}

// readBuffer is how much of a part is read at once.
const readBuffer = 64 << 10

// close removes the files.
func (p *parts[T]) close() {
	if p == nil {
		return
	}
	for _, f := range p.files {
		if f != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}
}
