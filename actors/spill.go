package actors

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// takeKept asks the keeper for all it holds; it holds nothing afterwards.
type takeKept struct {
	reply chan<- []*subjects.UsageRecord
}

// rescue is the last thing before a node ends, when nothing publishes any more:
// records that could not be stored are written to the spill file, else to the
// process's log, with what they cost. None is lost in silence.
func (u *usageLog) rescue() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	kept, err := ask(ctx, u.sys, u.keeper, func(r chan<- []*subjects.UsageRecord) any { return takeKept{r} })
	if err != nil || len(kept) == 0 {
		return
	}
	err = appendRecords(u.spill, kept)
	if err == nil {
		u.log.Warn("usage records could not be stored; they wait in a file for the next start", "records", len(kept), "file", u.spill)
		return
	}
	u.log.Error("usage records could not be stored, nor written to a file", "records", len(kept), "file", u.spill, "error", err)
	for _, rec := range kept {
		u.logLost(rec)
	}
}

func (u *usageLog) logLost(rec *subjects.UsageRecord) {
	u.log.Error("usage record lost", "call", rec.ID, "provider", rec.Provider, "model", rec.Model, "process", rec.Process,
		"outcome", rec.Outcome, "input_tokens", rec.InputTokens, "output_tokens", rec.OutputTokens)
}

// storeAll publishes records in order and says how many are stored. A duplicate
// is our own earlier try, which did arrive.
func (u *usageLog) storeAll(records []*subjects.UsageRecord) (stored int, err error) {
	to := make(chan acked, 1)
	for i, rec := range records {
		u.publish(rec, to)
		ack := <-to
		if ack.err != nil {
			return i, ack.err
		}
		u.noteSeq(ack.seq)
	}
	return len(records), nil
}

func appendRecords(path string, records []*subjects.UsageRecord) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var b []byte
	for _, rec := range records {
		b = append(rec.AppendJSON(b), '\n')
	}
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

// unspill stores what an earlier node left in the spill file, and then removes
// it. It tries until ctx ends; a record that is stored twice by that is one.
func (u *usageLog) unspill(ctx context.Context) {
	records := u.readSpill()
	if len(records) == 0 {
		return
	}
	for {
		if _, err := u.storeAll(records); err == nil {
			break
		}
		select {
		case <-time.After(maxRetryDelay):
		case <-ctx.Done():
			return
		}
	}
	u.log.Info("usage records that waited in a file are stored", "records", len(records))
	if err := os.Remove(u.spill); err != nil {
		u.log.Error("the file of waiting usage records cannot be removed", "file", u.spill, "error", err)
	}
}

func (u *usageLog) readSpill() (records []*subjects.UsageRecord) {
	f, err := os.Open(u.spill)
	if err != nil {
		return nil // there is none
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rec := &subjects.UsageRecord{}
		if err := json.Unmarshal(lines.Bytes(), rec); err != nil {
			u.log.Error("a line of the file of waiting usage records is none", "file", u.spill, "error", err)
			continue
		}
		records = append(records, rec)
	}
	if err := lines.Err(); err != nil {
		u.log.Error("the file of waiting usage records cannot be read to its end", "file", u.spill, "error", err)
	}
	return records
}
