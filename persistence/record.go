package persistence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/subjects"
)

const (
	// maxRecord bounds a stored record, in bytes of JSON.
	maxRecord = 64 << 10
	// maxDead is how much of an unreadable record is kept, in bytes.
	maxDead = 4 << 10
	// maxTime is 9999-12-31T23:59:59.999Z in milliseconds, the last one that
	// RFC 3339 can write.
	maxTime = 253402300799999
	// unnamed stands for an empty provider, process or model.
	unnamed = subjects.UnknownProcess
)

// measured is a record as the database sees it.
type measured struct {
	id     string
	ms     uint64
	names  names
	counts counters
	tries  []try  // that failed while a later one gave the outcome
	data   []byte // JSON

	run, batch string // "" = none
	spend      spend  // of the record and its tries
}

// try is what tries at one provider and model used.
type try struct {
	names  names
	counts counters
}

// maxTries bounds the sums that the tries of one record have, so that a record
// fits a transaction. The tokens of all others are those of "unknown".
const maxTries = 32

func (m *measured) minute() int64 { return int64(m.ms / 60_000) }

// measure reads one record. A record that says nothing certain is refused:
// broken JSON, a wrong type, a number out of an int64, more than 64 KiB, an id
// that is missing or longer than subjects.MaxRecordID. All else counts, clamped:
// a negative number as 0, a time before 1970 as 1970, an empty name as
// "unknown", a name above subjects.MaxName cut there, bytes that are not UTF-8
// replaced by U+FFFD (in the row, too, so that it is JSON).
func measure(data []byte, r *subjects.UsageRecord) (*measured, error) {
	if len(data) <= maxRecord && !utf8.Valid(data) {
		// Before decoding, since a decoder replaces other stretches of bytes.
		data, r = bytes.ToValidUTF8(data, []byte("\uFFFD")), nil
	}
	if len(data) > maxRecord {
		return nil, fmt.Errorf("the record has %d bytes, more than %d", len(data), maxRecord)
	}
	if r == nil {
		var err error
		if r, err = decode(data); err != nil {
			return nil, fmt.Errorf("the record is not readable: %w", err)
		}
	}
	if n := len(r.ID); n == 0 || n > subjects.MaxRecordID {
		return nil, fmt.Errorf("the record's id has %d bytes, not 1 to %d", n, subjects.MaxRecordID)
	}
	m := &measured{
		id:     r.ID,
		ms:     uint64(min(max(r.Timestamp.UnixMilli(), 0), maxTime)),
		names:  names{cutName(r.Provider), cutName(r.Process), cutName(r.Model)},
		counts: countersOf(r),
		data:   data,
		run:    cut(r.RunID),
		batch:  cut(r.BatchID),
	}
	m.spend = spend{calls: 1, last: m.ms}
	m.spend.count(r.Subscription, &m.counts)
	for i := range r.AttemptTrail {
		if a := &r.AttemptTrail[i]; a.Spent != nil {
			m.addTry(a.Provider, a.Spent)
		}
	}
	return m, nil
}

// addTo adds the record and its tries to the sums of a minute or an hour.
func (m *measured) addTo(series map[string]*counters) {
	addTo(series, string(m.names.appendSeries(nil)), &m.counts)
	for i := range m.tries {
		addTo(series, string(m.tries[i].names.appendSeries(nil)), &m.tries[i].counts)
	}
}

// spendKeys are the keys of the sums of spending that the record is in: its day's
// first.
func (m *measured) spendKeys() []string {
	keys := []string{string(dayKey(nil, m.ms))}
	if m.run != "" {
		keys = append(keys, runPrefix+m.run)
	}
	if m.batch != "" {
		keys = append(keys, batchPrefix+m.batch)
	}
	return keys
}

// addTry counts what a failed try spent under its own provider and model.
func (m *measured) addTry(provider string, spent *subjects.Spent) {
	c := countersOfTry(spent)
	m.spend.count(spent.Subscription, &c)
	n := names{cutName(provider), m.names.process, cutName(spent.Model)}
	at := slices.IndexFunc(m.tries, func(t try) bool { return t.names == n })
	switch {
	case at < 0 && len(m.tries) == maxTries-1:
		n.provider, n.model = unnamed, unnamed
		fallthrough
	case at < 0 && len(m.tries) < maxTries-1:
		at = len(m.tries)
		m.tries = append(m.tries, try{names: n})
	case at < 0:
		at = maxTries - 1
	}
	m.tries[at].counts.add(&c)
}

func cutName(s string) string {
	if s == "" {
		return unnamed
	}
	return cut(s)
}

// cut is s, of which no more than subjects.MaxName bytes are left.
func cut(s string) string {
	if len(s) <= subjects.MaxName {
		return s
	}
	n := subjects.MaxName
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// deadLetter is the value kept for an unreadable record.
type deadLetter struct {
	Stream string `json:"stream"`
	Seq    uint64 `json:"seq"`
	Reason string `json:"reason"`
	Bytes  int    `json:"bytes"`
	Data   []byte `json:"data"` // the first 4 KiB
}

func (d *deadLetter) encode() ([]byte, error) {
	b, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("usage database: a dead letter: %w", err)
	}
	return append([]byte{version}, b...), nil
}
