// Package persistence is the usage database: one Badger folder with every usage
// record, the sums over them, and the place in the usage stream up to which all
// of it has been read.
//
// The stream is the log and this is its projection. One transaction writes the
// rows of a batch, the sums they change and the stream sequence, so a crash
// repeats a batch wholly or not at all, and a folder that is lost or moved away
// is rebuilt by reading the stream again, but for the small states, which have
// nothing to do with it. Keys, integers big-endian:
//
//	m/schema                                  layout version
//	m/cursor                                  stream identity, its generation, last sequence
//	m/hole                                    what is missing, where Open found that rows are
//	u/<ms><gen><seq>                          row: format byte, JSON as received (packed: row.go)
//	i/<id> 0 <ms>                             version byte, then <ms><gen><seq> of the row
//	r/<m|h>/<minute>/<provider>/<process>/<model>  sums of a minute or an hour
//	d/<gen><seq>                              a record that could not be read
//	s/<r|b|d|m>/<run|batch|day|month>         sums of spending (spend.go)
//	m/pruned                                  up to when sums of runs may be gone (prune.go)
//	k/<key>                                   a small state of the node (states.go)
//
// ms is the record's timestamp in milliseconds since 1970, UTC; minute the start
// of the rollup in minutes since 1970, UTC; gen counts the stream identities
// seen, so that a stream that counts from 1 again overwrites nothing.
//
// Only this package imports Badger.
package persistence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// MinFreeBytes is the free disk space below which nothing is written. Badger
// writes through memory maps of sparse files, where a full disk is a fatal
// signal and not an error, so the margin covers what it may write by itself
// after a batch: a table per memory table and one round of compaction.
const MinFreeBytes = 64 << 20

var (
	// ErrClosed is returned by every method after Close.
	ErrClosed = errors.New("usage database: closed")
	// ErrBroken says that Badger failed in a way after which another write could
	// end the process. Nothing is lost: Close the store and Open it again.
	ErrBroken = errors.New("usage database: out of order until it is opened again (restart the node; the stream has what is missing)")
	// ErrNoSpace is returned by Apply when less than MinFreeBytes are free.
	// Nothing was written; the same batch may be tried again at any time.
	ErrNoSpace = errors.New("usage database: the disk is full")
)

// Options says where the database is. The zero value is not usable: Dir or
// InMemory must be set.
type Options struct {
	// Dir is the folder, made with mode 0700 when missing. One process at a time.
	Dir string
	// InMemory keeps everything in memory and touches no file; Dir is ignored.
	InMemory bool
	// Logger gets Badger's messages and unreadable records; nil = none.
	Logger *slog.Logger
	// SyncWrites makes Apply wait for the disk. The default, false, survives the
	// death of the process at any moment, since the kernel has the pages. It may
	// lose the newest batches when the machine loses power: then the cursor is
	// older by the same batches, and the stream, which is the log, gives them
	// again. Open notices when a power cut left a hole instead of a shorter end.
	SyncWrites bool
}

// Store is the open database. Cursor, Summary, Spent, Recent, Get, States and
// Verify may be called concurrently with each other and with Apply, and see whole
// transactions only; SaveStates may be called beside Apply, which it waits for;
// Apply, GC and Close are for one owner.
type Store struct {
	db  *badger.DB
	dir string // "" in memory
	log *slog.Logger

	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	closeWait time.Duration
	readers   sync.RWMutex  // read-held by every reader: Badger's Close takes the pages away
	writer    chan struct{} // holds one value while Apply works
	packer    packer        // the writer's
	pruneFrom []byte        // the writer's: where prune goes on, nil = at the beginning
	broken    atomic.Bool

	maxCount, maxBytes int64 // what one transaction may hold

	freeBytes func(dir string) (free uint64, known bool)
	failpoint func(committed bool) error // tests: called around every commit
}

// Open opens the database, making it when there is none. The error is an
// *OpenError, whose text says what to do.
//
// Every table file is read once and its checksums compared, because Badger
// would end the process on a damaged one. That costs about a second per
// gigabyte that is in the page cache. Damage to a log of the newest batches
// gives an older state with an older cursor, as after a power cut.
func Open(o Options) (*Store, error) {
	return open(o, tuning{freeBytes, memTableSize})
}

// tuning is what tests change.
type tuning struct {
	freeBytes    func(dir string) (free uint64, known bool)
	memTableSize int64
}

func open(o Options, with tuning) (*Store, error) {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		log: log, freeBytes: with.freeBytes, closing: make(chan struct{}), closeWait: 30 * time.Second, writer: make(chan struct{}, 1),
	}
	if !o.InMemory {
		s.dir = o.Dir
	}
	tables, err := s.prepare(o)
	if err != nil {
		return nil, err
	}
	if s.db, err = openBadger(badgerOptions(o, log, with.memTableSize)); err != nil {
		return nil, openErrorOf(s.dir, err)
	}
	// Room for the cursor and Badger's own end mark, which have at most 4 KiB.
	s.maxCount, s.maxBytes = s.db.MaxBatchCount()-4, s.db.MaxBatchSize()-8<<10
	if err := s.check(tables); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

// prepare checks the folder before Badger sees it.
func (s *Store) prepare(o Options) (maxVersion uint64, err error) {
	if o.InMemory {
		return 0, nil
	}
	if o.Dir == "" {
		return 0, &OpenError{Reason: Other, Detail: "no folder was given"}
	}
	return prepareFolder(o.Dir, s.freeBytes)
}

func badgerOptions(o Options, log *slog.Logger, memTable int64) badger.Options {
	dir := o.Dir
	if o.InMemory {
		dir = ""
	}
	return badger.DefaultOptions(dir).
		WithInMemory(o.InMemory).
		WithSyncWrites(o.SyncWrites).
		WithLogger(badgerLog{log}).
		WithMetricsEnabled(false).
		WithDetectConflicts(false). // one writer
		WithMemTableSize(memTable).
		WithNumMemtables(1).
		WithBaseTableSize(tableSize).
		WithNumLevelZeroTables(4).
		WithNumLevelZeroTablesStall(10).
		WithNumCompactors(2).
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithIndexCacheSize(0).
		// No value is as large as that, so the value log stays empty, and with it
		// the ways to lose a value while its key is kept.
		WithValueThreshold(2 * maxRecord).
		WithValueLogFileSize(1 << 20)
}

// Badger takes 1.3 times memTableSize from the heap for each of up to three
// memory tables, and keeps the buffers in which it builds table files, twice a
// table or more, eight of them. With these sizes an idle database has 4 MiB of
// heap, and one that is written as fast as it can be (30,000 records a second)
// some 40, up to 110 while a slow disk holds many tables up; with memory tables
// of 8 MiB, table files of 2 MiB and rows that are not packed it had 130 to 230.
const (
	memTableSize = 3 << 20
	tableSize    = 512 << 10
)

// openBadger turns a panic inside Badger's Open into an error.
func openBadger(o badger.Options) (db *badger.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("panic while opening: %.300v", r)
		}
	}()
	return badger.Open(o)
}

// Close flushes and closes the database. It waits for the operations under way,
// of which Apply, Verify and Each end early with ErrClosed; later ones return
// ErrClosed, too. Closing twice is no error. It waits at most 30 s: Badger tries
// for ever to flush to a disk that fails, and nothing is lost without it.
func (s *Store) Close() (err error) {
	s.closeOnce.Do(func() {
		close(s.closing)
		done := make(chan error, 1)
		go func() { done <- s.closeBadger() }()
		select {
		case err = <-done:
		case <-time.After(s.closeWait):
			err = fmt.Errorf("not within %v; the folder %s stays locked until the process ends", s.closeWait, s.dir)
		}
	})
	if err != nil {
		return fmt.Errorf("usage database: closing: %w", err)
	}
	return nil
}

func (s *Store) closeBadger() error {
	select {
	case s.writer <- struct{}{}:
		defer func() { <-s.writer }()
	case <-time.After(s.closeWait / 2):
		// It waits for a flush that does not succeed; Badger's Close wakes it.
	}
	s.readers.Lock()
	defer s.readers.Unlock()
	return s.db.Close()
}

func (s *Store) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// GC forgets old sums of spending (of runs and batches 90 days after their last
// record; days after 400 days, of which their months keep the sum) and gives back
// space in Badger's value log. It is cheap, may be called at any time and is meant
// to be called hourly; nothing to do is no error. What is too much for once is
// done by later calls.
func (s *Store) GC() error {
	return s.write(func() error {
		return errors.Join(s.prune(time.Now()), s.collect())
	})
}

func (s *Store) collect() error {
	if s.dir == "" {
		return nil
	}
	for {
		err := s.db.RunValueLogGC(0.5)
		switch {
		case err == nil:
			continue // there may be more
		case errors.Is(err, badger.ErrNoRewrite), errors.Is(err, badger.ErrRejected):
			return nil
		}
		return fmt.Errorf("usage database: value log: %w", err)
	}
}

// view runs fn on a consistent snapshot.
func (s *Store) view(fn func(txn *badger.Txn) error) error {
	s.readers.RLock()
	defer s.readers.RUnlock()
	return s.guarded(func() error {
		txn := s.db.NewTransaction(false)
		defer txn.Discard()
		return fn(txn)
	})
}

// write runs fn as the only writer.
func (s *Store) write(fn func() error) error {
	select {
	case s.writer <- struct{}{}:
	case <-s.closing:
		return ErrClosed
	}
	defer func() { <-s.writer }()
	return s.guarded(fn)
}

// guarded runs fn unless the database is closed or broken. A panic inside Badger
// (it has them for damaged blocks and after failed writes) becomes ErrBroken.
func (s *Store) guarded(fn func() error) (err error) {
	switch {
	case s.isClosing():
		return ErrClosed
	case s.broken.Load():
		return ErrBroken
	}
	defer func() {
		if r := recover(); r != nil {
			s.broken.Store(true)
			s.log.Error("usage database: panic inside Badger", "panic", fmt.Sprintf("%.300v", r))
			err = fmt.Errorf("%w: %.300v", ErrBroken, r)
		}
	}()
	return fn()
}

// badgerLog passes Badger's messages on; its informational ones are for debugging.
type badgerLog struct{ log *slog.Logger }

func (b badgerLog) Errorf(f string, a ...any)   { b.put(slog.LevelError, f, a) }
func (b badgerLog) Warningf(f string, a ...any) { b.put(slog.LevelWarn, f, a) }
func (b badgerLog) Infof(f string, a ...any)    { b.put(slog.LevelDebug, f, a) }
func (b badgerLog) Debugf(f string, a ...any)   { b.put(slog.LevelDebug, f, a) }

func (b badgerLog) put(level slog.Level, format string, args []any) {
	if ctx := context.Background(); b.log.Enabled(ctx, level) {
		b.log.Log(ctx, level, "usage database: "+strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
