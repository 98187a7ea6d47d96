package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	schemaKey  = "m/schema"
	cursorKey  = "m/cursor"
	holeKey    = "m/hole"
	rowPrefix  = "u/"
	idPrefix   = "i/"
	rollPrefix = "r/"
	deadPrefix = "d/"

	prunedKey   = "m/pruned"
	spendPrefix = "s/"
	runPrefix   = "s/r/"
	batchPrefix = "s/b/"
	dayPrefix   = "s/d/"
	monthPrefix = "s/m/"
	statePrefix = "k/"
	dayFormat   = "2006-01-02"
	monthFormat = "2006-01"
	dayMillis   = 24 * 3600 * 1000
	monthKeyLen = len(monthPrefix) + len(monthFormat)
)

// version is the first byte of every value but a rollup's, a row's and a cursor's.
const version = 1

var errFormat = errors.New("not in the format of this version")

// rowRef is the place of a row; its encoding sorts by time, then by arrival.
type rowRef struct {
	ms  uint64
	gen uint32
	seq uint64
}

const rowRefLen = 20

func (r rowRef) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, r.ms)
	b = binary.BigEndian.AppendUint32(b, r.gen)
	return binary.BigEndian.AppendUint64(b, r.seq)
}

func parseRowRef(b []byte) (rowRef, error) {
	if len(b) != rowRefLen {
		return rowRef{}, fmt.Errorf("a row's place of %d bytes: %w", len(b), errFormat)
	}
	return rowRef{
		ms: binary.BigEndian.Uint64(b), gen: binary.BigEndian.Uint32(b[8:]), seq: binary.BigEndian.Uint64(b[12:]),
	}, nil
}

func (r rowRef) key() []byte { return r.append(append(make([]byte, 0, 22), rowPrefix...)) }

// idKey is the index key of a record. A call id may be used again once its call
// is forgotten: the same id at another time is another call, and only the same
// record at the same time is a repeat.
func idKey(id string, ms uint64) []byte { return binary.BigEndian.AppendUint64(idsKey(id), ms) }

// idsKey is the prefix of idKey for all records of an id. Keys of another id may
// have it too, and are then of another length.
func idsKey(id string) []byte {
	b := make([]byte, 0, len(idPrefix)+len(id)+9)
	return append(append(append(b, idPrefix...), id...), 0)
}

// dayKey is the key of the sum of the day that ms is in, and monthKey of what
// was folded into the month of a day key.
func dayKey(b []byte, ms uint64) []byte {
	return time.UnixMilli(int64(ms)).UTC().AppendFormat(append(b, dayPrefix...), dayFormat)
}

func monthKey(day []byte) []byte {
	month := day[len(dayPrefix):min(len(day), monthKeyLen)]
	return append([]byte(monthPrefix), month...)
}

func deadKey(gen uint32, seq uint64) []byte {
	b := binary.BigEndian.AppendUint32([]byte(deadPrefix), gen)
	return binary.BigEndian.AppendUint64(b, seq)
}

// resolution is the length of a rollup.
type resolution struct {
	letter  byte
	minutes int64
}

var (
	byMinute    = resolution{'m', 1}
	byHour      = resolution{'h', 60}
	resolutions = [...]resolution{byMinute, byHour}
)

func (r resolution) prefix() []byte { return []byte{rollPrefix[0], rollPrefix[1], r.letter, '/'} }

// key is the rollup's key. minute is a multiple of r.minutes and not negative;
// series is what appendSeries wrote, or "" for the first key of the bucket.
func (r resolution) key(minute int64, series string) []byte {
	b := make([]byte, 0, 13+len(series))
	b = append(b, rollPrefix[0], rollPrefix[1], r.letter, '/')
	b = binary.BigEndian.AppendUint64(b, uint64(minute))
	b = append(b, '/')
	return append(b, series...)
}

// splitRollup is the reverse of key, without copying.
func splitRollup(key []byte) (minute int64, series []byte, err error) {
	if len(key) < 13 || key[3] != '/' || key[12] != '/' || key[4] > 0x7f {
		return 0, nil, fmt.Errorf("a rollup's key of %d bytes: %w", len(key), errFormat)
	}
	return int64(binary.BigEndian.Uint64(key[4:12])), key[13:], nil
}

// names are the dimensions of a rollup.
type names struct{ provider, process, model string }

// appendSeries writes the names as <provider>/<process>/<model>, with "/" and
// "%" inside a name as %2F and %25. Any other byte stands for itself.
func (n names) appendSeries(b []byte) []byte {
	b = append(appendEscaped(b, n.provider), '/')
	b = append(appendEscaped(b, n.process), '/')
	return appendEscaped(b, n.model)
}

func appendEscaped(b []byte, s string) []byte {
	if !strings.ContainsAny(s, "/%") {
		return append(b, s...)
	}
	for i := range len(s) {
		switch s[i] {
		case '/':
			b = append(b, "%2F"...)
		case '%':
			b = append(b, "%25"...)
		default:
			b = append(b, s[i])
		}
	}
	return b
}

var unescaper = strings.NewReplacer("%2F", "/", "%25", "%")

func parseSeries(b []byte) (names, error) {
	parts := bytes.Split(b, []byte{'/'})
	if len(parts) != 3 {
		return names{}, fmt.Errorf("a rollup of %d names: %w", len(parts), errFormat)
	}
	return names{
		unescaper.Replace(string(parts[0])), unescaper.Replace(string(parts[1])), unescaper.Replace(string(parts[2])),
	}, nil
}
