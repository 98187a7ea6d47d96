package persistence

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"google.golang.org/protobuf/proto"
)

// Badger checks its files in goroutines of its own and ends the process when
// one is damaged (y.Check, a panic that nobody can recover), deletes tables that
// a shortened MANIFEST does not name, and refuses files that a kill left empty.
// So the folder is looked at before Badger sees it.

// badgerFile is every name that Badger may read as one of its numbered files.
var badgerFile = regexp.MustCompile(`\.(sst|mem|vlog)$`)

var badgerNumbered = regexp.MustCompile(`^[0-9]{1,9}\.(sst|mem|vlog)$`)

// prepareFolder makes the folder ready for Badger, or says why it is not. It
// returns the highest version that a table holds, 0 for none.
func prepareFolder(dir string, free func(string) (uint64, bool)) (maxVersion uint64, err error) {
	if err := makeFolder(dir); err != nil {
		return 0, openErrorOf(dir, err)
	}
	unlock, ok, err := lockFolder(dir)
	if err != nil {
		return 0, openErrorOf(dir, err)
	}
	if !ok {
		return 0, &OpenError{Dir: dir, Reason: Locked, Detail: holder(dir)}
	}
	// Badger takes the lock itself; whoever comes between is told by Badger.
	defer unlock()
	if n, known := free(dir); known && n < MinFreeBytes {
		return 0, &OpenError{Dir: dir, Reason: NoSpace, Detail: fmt.Sprintf("%d MiB are free and %d MiB are needed", n>>20, MinFreeBytes>>20)}
	}
	return inspect(dir)
}

// makeFolder makes the folder and tries whether files can be made in it.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".try-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// holder names the process that Badger's pid file names.
func holder(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "LOCK"))
	if pid := strings.TrimSpace(string(b)); err == nil && pid != "" && len(pid) < 12 {
		return "process " + pid
	}
	return ""
}

// inspect looks at every file that Badger will read.
func inspect(dir string) (maxVersion uint64, err error) {
	defer func() { // the decoders of Badger's formats panic on nonsense
		if r := recover(); r != nil {
			err = corrupt(dir, "a file makes no sense: %.200v", r)
		}
	}()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, openErrorOf(dir, err)
	}
	var data []string // names of tables and logs
	for _, e := range entries {
		if !badgerFile.MatchString(e.Name()) && e.Name() != badger.ManifestFilename &&
			e.Name() != badger.KeyRegistryFileName && e.Name() != discardFile {
			continue
		}
		keep, err := inspectEntry(dir, e)
		if err != nil {
			return 0, err
		}
		if keep && badgerFile.MatchString(e.Name()) {
			data = append(data, e.Name())
		}
	}
	return inspectTables(dir, data)
}

// discardFile is Badger's count of garbage in its value log, which is empty here.
const discardFile = "DISCARD"

// inspectEntry checks one file by name and size and removes what holds nothing:
// the discard counts, which Badger makes anew, and logs of no bytes, which a
// kill leaves between making a file and growing it, or emptying and removing it.
func inspectEntry(dir string, e os.DirEntry) (keep bool, err error) {
	path := filepath.Join(dir, e.Name())
	info, err := e.Info()
	if err != nil {
		return false, openErrorOf(dir, err)
	}
	if !info.Mode().IsRegular() {
		return false, corrupt(dir, "%s is not a file", e.Name())
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, openErrorOf(dir, err)
	}
	defer f.Close()
	log := strings.HasSuffix(e.Name(), ".mem") || strings.HasSuffix(e.Name(), ".vlog")
	switch {
	case e.Name() == discardFile, log && info.Size() == 0:
		if err := os.Remove(path); err != nil {
			return false, openErrorOf(dir, err)
		}
		return false, nil
	case e.Name() == badger.KeyRegistryFileName && info.Size() != keyRegistrySize:
		return false, corrupt(dir, "%s has %d bytes, not %d", e.Name(), info.Size(), keyRegistrySize)
	case e.Name() != badger.ManifestFilename && e.Name() != badger.KeyRegistryFileName && !badgerNumbered.MatchString(e.Name()):
		return false, corrupt(dir, "there is a foreign file %q", e.Name())
	case strings.HasSuffix(e.Name(), ".mem"):
		if err := inspectLog(f); err != nil {
			return false, corrupt(dir, "%s: %v", e.Name(), err)
		}
	}
	return true, nil
}

// keyRegistrySize is that of a registry without keys: 16 random bytes and a greeting.
const keyRegistrySize = 28

// inspectLog follows a write-ahead log as Badger does, to its first entry that
// is not whole, and refuses lengths for which Badger would ask for gigabytes.
func inspectLog(f *os.File) error {
	const header, longestKey = 20, 1 << 16
	r := bufio.NewReaderSize(io.NewSectionReader(f, header, 1<<31), 64<<10)
	for {
		sum := crc32.New(castagnoli)
		tee := &byteTee{r, sum}
		flags := [2]byte{}
		if _, err := io.ReadFull(tee, flags[:]); err != nil {
			return nil
		}
		var n [3]uint64 // key, value, expiry
		for i := range n {
			var err error
			if n[i], err = binary.ReadUvarint(tee); err != nil {
				return nil
			}
		}
		keyLen, valueLen := uint32(n[0]), uint32(n[1])
		if keyLen > longestKey || keyLen == 0 {
			return nil // here Badger stops
		}
		if valueLen > 4*maxRecord {
			return fmt.Errorf("it has an entry of %d bytes", valueLen)
		}
		if _, err := io.CopyN(io.Discard, tee, int64(keyLen+valueLen)); err != nil {
			return nil
		}
		var want [crc32.Size]byte
		if _, err := io.ReadFull(r, want[:]); err != nil || binary.BigEndian.Uint32(want[:]) != sum.Sum32() {
			return nil
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// byteTee is an io.ByteReader that hashes what is read.
type byteTee struct {
	r *bufio.Reader
	h io.Writer
}

func (t *byteTee) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	_, _ = t.h.Write(p[:n])
	return n, err
}

func (t *byteTee) ReadByte() (byte, error) {
	b, err := t.r.ReadByte()
	if err == nil {
		_, _ = t.h.Write([]byte{b})
	}
	return b, err
}

// inspectTables checks MANIFEST and every table it names.
func inspectTables(dir string, files []string) (maxVersion uint64, err error) {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, os.ErrNotExist) {
		if len(files) > 0 {
			return 0, corrupt(dir, "%s is missing", badger.ManifestFilename)
		}
		return 0, nil
	}
	if err != nil {
		return 0, openErrorOf(dir, err)
	}
	defer f.Close()
	manifest, _, err := badger.ReplayManifestFile(f, 0, badger.DefaultOptions(dir).WithLogger(nil))
	if err != nil {
		return 0, corrupt(dir, "%s: %s", badger.ManifestFilename, firstLine(err.Error()))
	}
	for id, t := range manifest.Tables {
		name := fmt.Sprintf("%06d.sst", id)
		switch {
		case !slices.Contains(files, name):
			return 0, corrupt(dir, "%s is missing", name)
		case int(t.Level) >= maxLevels || t.Compression != options.None || t.KeyID != 0:
			return 0, corrupt(dir, "%s is not a table of this database", name)
		}
		v, err := inspectTable(filepath.Join(dir, name))
		if err != nil {
			return 0, corrupt(dir, "%s: %s", name, firstLine(err.Error()))
		}
		maxVersion = max(maxVersion, v)
	}
	return maxVersion, nil
}

const maxLevels = 7

var errTable = errors.New("its checksums do not fit")

// inspectTable reads a whole table and compares its checksums. A table ends with
// its index, the index's length, the index's checksum and that one's length; a
// block likewise with the number of its entries, its checksum and that one's length.
func inspectTable(path string) (maxVersion uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	index, err := readIndex(f)
	if err != nil {
		return 0, err
	}
	if index.OffsetsLength() == 0 {
		return 0, errTable
	}
	r := bufio.NewReaderSize(f, 256<<10)
	var block fb.BlockOffset
	var buf []byte
	var at uint32
	for i := range index.OffsetsLength() {
		if !index.Offsets(&block, i) || block.Offset() != at || block.Len() > 1<<30 {
			return 0, errTable
		}
		at += block.Len()
		buf = slices.Grow(buf[:0], int(block.Len()))[:block.Len()]
		if _, err := io.ReadFull(r, buf); err != nil {
			return 0, err
		}
		if err := checkBlock(buf); err != nil {
			return 0, err
		}
	}
	return index.MaxVersion(), nil
}

func readIndex(f *os.File) (*fb.TableIndex, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	// tail reads the n bytes before end and moves end there.
	end := size
	tail := func(n int64) ([]byte, error) {
		if n < 0 || n > end {
			return nil, errTable
		}
		end -= n
		b := make([]byte, n)
		_, err := f.ReadAt(b, end)
		return b, err
	}
	sum, err := tailBlock(tail)
	if err != nil {
		return nil, err
	}
	index, err := tailBlock(tail)
	if err != nil {
		return nil, err
	}
	if err := compareSum(index, sum); err != nil {
		return nil, err
	}
	return fb.GetRootAsTableIndex(index, 0), nil
}

// tailBlock reads a length and the bytes before it.
func tailBlock(tail func(int64) ([]byte, error)) ([]byte, error) {
	n, err := tail(4)
	if err != nil {
		return nil, err
	}
	return tail(int64(binary.BigEndian.Uint32(n)))
}

func checkBlock(b []byte) error {
	end := len(b) - 4
	if end < 0 {
		return errTable
	}
	n := int(binary.BigEndian.Uint32(b[end:]))
	if n > end {
		return errTable
	}
	return compareSum(b[:end-n], b[end-n:end])
}

func compareSum(data, encoded []byte) error {
	var want pb.Checksum
	if err := proto.Unmarshal(encoded, &want); err != nil {
		return errTable
	}
	if want.GetAlgo() != pb.Checksum_CRC32C || want.GetSum() != uint64(crc32.Checksum(data, castagnoli)) {
		return errTable
	}
	return nil
}
