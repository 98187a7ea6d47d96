package persistence

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/sluice-llm/sluice/subjects"
)

// maxStream bounds a stream identity, in bytes.
const maxStream = 1024

// Cursor says how far the usage stream has been read. The zero Cursor is that
// of an empty database.
type Cursor struct {
	// Stream is the identity given to Apply: opaque, 1 to 1,024 bytes.
	Stream string
	// Seq is the sequence of the last message applied.
	Seq uint64
}

// Entry is one message of the usage stream.
type Entry struct {
	// Seq is its stream sequence, from 1.
	Seq uint64
	// Data is the record's JSON as it was in the stream. It is copied.
	Data []byte
	// Record is Data decoded, where the caller has that already; nil = Apply
	// decodes. It must say what Data says.
	Record *subjects.UsageRecord
}

// Applied counts what became of a batch's entries.
type Applied struct {
	// Rows were stored and counted.
	Rows int
	// Duplicates had been applied before: their sequence is not above the
	// cursor's, or a row has their id and time.
	Duplicates int
	// Malformed could not be read. They were logged and put aside, and the cursor
	// went on.
	Malformed int
}

func (a *Applied) add(b Applied) {
	a.Rows += b.Rows
	a.Duplicates += b.Duplicates
	a.Malformed += b.Malformed
}

// Cursor returns how far the stream has been applied.
func (s *Store) Cursor() (Cursor, error) {
	var c cursor
	err := s.view(func(txn *badger.Txn) (err error) {
		c, err = readCursor(txn)
		return err
	})
	return Cursor{c.stream, c.seq}, err
}

// Apply stores a batch of the stream's messages: rows, sums and cursor in one
// transaction, or in several for a large batch, each of which leaves the
// database whole. An entry is applied once, however often it comes: one whose
// Seq is not above the cursor of the same stream is a repeat, and so is one
// whose id is stored with the same timestamp. When stream differs from the
// cursor's identity the sequences start anew and only ids and times decide, so a
// stream that was made again or restored neither counts twice nor loses anything.
//
// The identity must therefore change whenever sequences are given out again. A
// stream whose last sequence is below Cursor().Seq has lost its end (JetStream
// after a power cut) and will: give it another identity.
//
// After an error the transactions before it stand, Applied says what they held,
// and the whole batch may be given again. ErrNoSpace: try later. ErrBroken:
// close and reopen. Calls are serialised; use one goroutine.
func (s *Store) Apply(stream string, batch []Entry) (Applied, error) {
	if n := len(stream); n == 0 || n > maxStream {
		return Applied{}, fmt.Errorf("usage database: a stream identity of %d bytes, not 1 to %d", n, maxStream)
	}
	w := &writer{s: s, stream: stream}
	err := s.write(func() error {
		defer w.discard()
		return w.applyAll(inOrder(batch))
	})
	return w.done, err
}

func (s *Store) checkSpace() error {
	if s.dir == "" {
		return nil
	}
	if free, known := s.freeBytes(s.dir); known && free < MinFreeBytes {
		return fmt.Errorf("%w: %d MiB are free under %s and %d MiB are needed; the records wait in the stream",
			ErrNoSpace, free>>20, s.dir, MinFreeBytes>>20)
	}
	return nil
}

// inOrder returns the batch by ascending Seq. A consumer's batch is so already.
func inOrder(batch []Entry) []Entry {
	bySeq := func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) }
	if slices.IsSortedFunc(batch, bySeq) {
		return batch
	}
	return slices.SortedStableFunc(slices.Values(batch), bySeq)
}

// cursor is the stored Cursor. gen is 1 for the first stream ever seen; rows and
// dead count what the database holds, so that a loss shows where no sum tells it.
// today has what the last row's day spent and its own sum does not have yet: the
// cursor is written anyway, and the sum only when another day comes.
type cursor struct {
	gen        uint32
	seq        uint64
	rows, dead uint64
	today      spend
	stream     string
}

// cursorLen is what a cursor has before the stream, and cursorVersion its first
// byte. One of version 1 has no today.
const (
	oldCursorLen  = 29
	cursorLen     = oldCursorLen + spendLen
	cursorVersion = 2
)

func (c cursor) encode() []byte {
	b := append(make([]byte, 0, cursorLen+len(c.stream)), cursorVersion)
	b = binary.BigEndian.AppendUint32(b, c.gen)
	for _, v := range [...]uint64{c.seq, c.rows, c.dead} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return append(c.today.append(b), c.stream...)
}

func (c *cursor) decode(b []byte) error {
	at := cursorLen
	if len(b) > 0 && b[0] == version {
		at = oldCursorLen
	}
	if len(b) < at || b[0] != version && b[0] != cursorVersion {
		return fmt.Errorf("a cursor of %d bytes: %w", len(b), errFormat)
	}
	*c = cursor{
		gen: binary.BigEndian.Uint32(b[1:]), seq: binary.BigEndian.Uint64(b[5:]),
		rows: binary.BigEndian.Uint64(b[13:]), dead: binary.BigEndian.Uint64(b[21:]), stream: string(b[at:]),
	}
	if at == oldCursorLen {
		return nil
	}
	return c.today.decode(b[oldCursorLen:cursorLen])
}

func (c cursor) put(txn *badger.Txn) error {
	if err := txn.Set([]byte(cursorKey), c.encode()); err != nil {
		return fmt.Errorf("usage database: writing: %w", err)
	}
	return nil
}

func readCursor(txn *badger.Txn) (c cursor, err error) {
	_, err = read(txn, []byte(cursorKey), c.decode)
	return c, err
}

// read gives key's value to decode; found is false when there is none.
func read(txn *badger.Txn, key []byte, decode func([]byte) error) (found bool, err error) {
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("usage database: reading: %w", err)
	}
	return true, item.Value(decode)
}

// writer applies one batch in one or more transactions.
type writer struct {
	s      *Store
	stream string
	done   Applied // by the transactions committed

	txn          *badger.Txn
	cur          cursor
	dirty        bool
	part         Applied // by txn
	deltas       map[string]*counters
	spends       map[string]*spend
	count, bytes int64 // what txn holds, by Badger's measure
	key          []byte
}

func (w *writer) applyAll(batch []Entry) error {
	if err := w.begin(); err != nil {
		return err
	}
	for i := range batch {
		if err := w.add(&batch[i]); err != nil {
			return err
		}
	}
	return w.commit()
}

func (w *writer) begin() (err error) {
	w.discard()
	if w.s.isClosing() {
		return ErrClosed
	}
	if err := w.s.checkSpace(); err != nil {
		return err
	}
	w.txn = w.s.db.NewTransaction(true)
	w.dirty, w.part, w.count, w.bytes = false, Applied{}, 0, 0
	w.deltas, w.spends = make(map[string]*counters), make(map[string]*spend)
	if w.cur, err = readCursor(w.txn); err == nil && w.cur.stream != w.stream {
		w.cur.gen, w.cur.seq, w.cur.stream = w.cur.gen+1, 0, w.stream
	}
	return err
}

func (w *writer) discard() {
	if w.txn != nil {
		w.txn.Discard()
	}
}

func (w *writer) add(e *Entry) error {
	if e.Seq <= w.cur.seq {
		w.part.Duplicates++
		return nil
	}
	m, bad := measure(e.Data, e.Record)
	if err := w.makeRoom(m); err != nil {
		return err
	}
	w.dirty, w.cur.seq = true, e.Seq
	if bad != nil {
		return w.putDead(e, bad)
	}
	known, err := read(w.txn, idKey(m.id, m.ms), func([]byte) error { return nil })
	switch {
	case err != nil:
		return err
	case known:
		w.part.Duplicates++
		return nil
	}
	return w.putRow(m)
}

// makeRoom commits what is pending when m may not fit beside it. m is nil for a
// dead letter.
func (w *writer) makeRoom(m *measured) error {
	count, size := int64(1), int64(4*maxDead)
	if m != nil {
		count, size = m.room()
	}
	if w.count+count <= w.s.maxCount && w.bytes+size <= w.s.maxBytes {
		return nil
	}
	if err := w.commit(); err != nil {
		return err
	}
	return w.begin()
}

func (w *writer) put(key, value []byte) error {
	w.count++
	w.bytes += entryBytes(key, len(value))
	if err := w.txn.Set(key, value); err != nil {
		return fmt.Errorf("usage database: writing: %w", err)
	}
	return nil
}

// entryBytes is Badger's measure of an entry: two bytes of flags, ten for the version.
func entryBytes(key []byte, value int) int64 { return int64(len(key) + value + 12) }

func (w *writer) putRow(m *measured) error {
	ref := rowRef{m.ms, w.cur.gen, w.cur.seq}
	if err := w.put(ref.key(), w.s.packer.pack(m.data)); err != nil {
		return err
	}
	if err := w.put(idKey(m.id, m.ms), ref.append([]byte{version})); err != nil {
		return err
	}
	w.addCounts(m.minute(), m.names, &m.counts)
	for i := range m.tries {
		w.addCounts(m.minute(), m.tries[i].names, &m.tries[i].counts)
	}
	w.addSpend(m)
	w.part.Rows++
	w.cur.rows++
	return nil
}

// room is the number of entries that a record takes and their bytes, by Badger's
// measure, at most.
func (m *measured) room() (count, size int64) {
	const fixed = 128 // of a key, and Badger's own
	count = 2
	size = int64(len(m.data) + len(m.id) + 2*fixed)
	series := func(n names) {
		count += int64(len(resolutions))
		// A name's bytes may triple by escaping.
		size += int64(len(resolutions) * (3*(len(n.provider)+len(n.process)+len(n.model)) + countersLen + fixed))
	}
	series(m.names)
	for i := range m.tries {
		series(m.tries[i].names)
	}
	return count + 3, size + int64(len(m.run)+len(m.batch)+3*(spendLen+fixed))
}

// addCounts adds c to the rollups of a series.
func (w *writer) addCounts(minute int64, n names, c *counters) {
	w.key = n.appendSeries(w.key[:0])
	for _, r := range resolutions {
		key := r.key(minute-minute%r.minutes, string(w.key))
		d := w.deltas[string(key)]
		if d == nil {
			d = &counters{}
			w.deltas[string(key)] = d
			w.willPut(key, countersLen)
		}
		d.add(c)
	}
}

// addSpend adds a record to the sums of its day, its run and its batch.
func (w *writer) addSpend(m *measured) {
	today := &w.cur.today
	if today.calls > 0 && today.last/dayMillis != m.ms/dayMillis {
		w.key = dayKey(w.key[:0], today.last)
		w.spendAt(w.key).add(today)
		*today = spend{}
	}
	today.add(&m.spend)
	if m.run != "" {
		w.key = append(append(w.key[:0], runPrefix...), m.run...)
		w.spendAt(w.key).add(&m.spend)
	}
	if m.batch != "" {
		w.key = append(append(w.key[:0], batchPrefix...), m.batch...)
		w.spendAt(w.key).add(&m.spend)
	}
}

func (w *writer) spendAt(key []byte) *spend {
	d := w.spends[string(key)]
	if d == nil {
		d = &spend{}
		w.spends[string(key)] = d
		w.willPut(key, spendLen)
	}
	return d
}

// willPut counts what commit will write.
func (w *writer) willPut(key []byte, value int) {
	w.count++
	w.bytes += entryBytes(key, value)
}

func (w *writer) putDead(e *Entry, reason error) error {
	w.s.log.Warn("usage database: a record could not be read and was put aside",
		"stream", w.stream, "seq", e.Seq, "bytes", len(e.Data), "reason", fmt.Sprintf("%.300v", reason))
	d := deadLetter{w.stream, e.Seq, fmt.Sprintf("%.300v", reason), len(e.Data), e.Data[:min(len(e.Data), maxDead)]}
	value, err := d.encode()
	if err != nil {
		return err
	}
	w.part.Malformed++
	w.cur.dead++
	return w.put(deadKey(w.cur.gen, e.Seq), value)
}

// commit writes the sums and the cursor beside the rows and commits.
func (w *writer) commit() error {
	if w.dirty {
		if err := putSums(w.txn, w.deltas); err != nil {
			return err
		}
		if err := putSums(w.txn, w.spends); err != nil {
			return err
		}
		if err := w.cur.put(w.txn); err != nil {
			return err
		}
		if err := w.s.commit(w.txn); err != nil {
			return err
		}
	}
	w.done.add(w.part)
	return nil
}

// putSums adds to the sums that are stored.
func putSums[T any, S sum[T]](txn *badger.Txn, deltas map[string]S) error {
	for key, delta := range deltas {
		stored := S(new(T))
		if _, err := read(txn, []byte(key), stored.decode); err != nil {
			return err
		}
		stored.add(delta)
		if err := txn.Set([]byte(key), stored.encode()); err != nil {
			return fmt.Errorf("usage database: writing: %w", err)
		}
	}
	return nil
}

// update commits what fn writes, which is not much. Like every transaction it
// writes the cursor, too: see unbroken. Only the writer calls it.
func (s *Store) update(fn func(*badger.Txn) error) error {
	if s.isClosing() {
		return ErrClosed
	}
	if err := s.checkSpace(); err != nil {
		return err
	}
	txn := s.db.NewTransaction(true)
	defer txn.Discard()
	c, err := readCursor(txn)
	if err != nil {
		return err
	}
	if err := fn(txn); err != nil {
		return err
	}
	if err := c.put(txn); err != nil {
		return err
	}
	return s.commit(txn)
}

func (s *Store) commit(txn *badger.Txn) error {
	if err := s.fail(false); err != nil {
		return err
	}
	if err := txn.Commit(); err != nil {
		// Badger may have no memory table left, and its next write would end
		// the process.
		s.broken.Store(true)
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return s.fail(true)
}

func (s *Store) fail(committed bool) error {
	if s.failpoint == nil {
		return nil
	}
	return s.failpoint(committed)
}
