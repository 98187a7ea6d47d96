package actors

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/config"
)

// What an account keeps through a restart, as JSON: its breaker under one key, its
// quota, the counts of the last hour and the windows under another.

func breakerKey(provider string) string { return "breaker/" + provider }

func quotaKey(provider string) string { return "quota/" + provider }

// maxSavedState bounds one state; what stores them takes no more.
const maxSavedState = 64 << 10

type quotaState struct {
	Account *holdState           `json:"account,omitempty"`
	Models  map[string]holdState `json:"models,omitempty"`
	// Minutes are those of the last hour that have a completion.
	Minutes  []minuteState     `json:"minutes,omitempty"`
	SoftSaid *time.Time        `json:"softSaid,omitempty"`
	Windows  map[string]window `json:"windows,omitempty"`
}

type holdState struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Reset time.Time `json:"reset"`
	Times int       `json:"times"`
}

type minuteState struct {
	Minute      int64 `json:"minute"`
	Completions int64 `json:"completions"`
	Tokens      int64 `json:"tokens"`
}

// encodeQuota is nil when there is nothing to keep.
func encodeQuota(q *quota, ws windows, now time.Time) []byte {
	st := quotaState{Windows: ws}
	if q.account != nil {
		h := q.account.state()
		st.Account = &h
	}
	for model, h := range q.models {
		if st.Models == nil {
			st.Models = map[string]holdState{}
		}
		st.Models[model] = h.state()
	}
	n := minuteOf(now)
	for i := range int64(len(q.hour)) { // the oldest first
		if m := &q.hour[uint64(n+1+i)%uint64(len(q.hour))]; m.live(n) && m.completions > 0 { //nolint:gosec // an index
			st.Minutes = append(st.Minutes, minuteState{m.minute, m.completions, m.tokens})
		}
	}
	if !q.softSaid.IsZero() && now.Sub(q.softSaid) < time.Hour {
		st.SoftSaid = &q.softSaid
	}
	if st.Account == nil && st.Models == nil && st.Minutes == nil && st.SoftSaid == nil && len(ws) == 0 {
		return nil
	}
	b, err := json.Marshal(&st)
	if err == nil && len(b) > maxSavedState { // names in need of many escapes
		st.Models = nil
		b, err = json.Marshal(&st)
	}
	if err != nil { // cannot happen: times within bounds, and finite numbers
		return nil
	}
	return b
}

func (h *quotaHold) state() holdState { return holdState{h.since, h.until, h.resetAt, h.times} }

// hold makes a hold of what was saved. A clock that was set back holds nobody
// longer than to the next probe.
func (s *holdState) hold(now time.Time) *quotaHold {
	h := &quotaHold{since: s.Since, until: s.Until, resetAt: believed(s.Reset, now), times: max(s.Times, 1)}
	if latest := now.Add(probeEvery); h.until.After(latest) {
		h.until = latest
	}
	return h
}

// decodeQuota restores what encodeQuota kept, without what is over by now.
func decodeQuota(b []byte, now time.Time) (*quota, windows, error) {
	q, ws := &quota{}, windows{}
	if b == nil {
		return q, ws, nil
	}
	var st quotaState
	if err := json.Unmarshal(b, &st); err != nil {
		return q, ws, fmt.Errorf("quota: %w", err)
	}
	if st.Account != nil {
		q.account = st.Account.hold(now)
	}
	for model, h := range st.Models {
		if len(model) <= maxHeldName {
			q.put(model, h.hold(now))
		}
	}
	q.prune(now)
	n := minuteOf(now)
	for _, m := range st.Minutes {
		if kept := (hourMinute{m.Minute, max(m.Completions, 0), max(m.Tokens, 0)}); kept.live(n) {
			q.hour[uint64(m.Minute)%uint64(len(q.hour))] = kept //nolint:gosec // an index
		}
	}
	if st.SoftSaid != nil {
		q.softSaid = *st.SoftSaid
	}
	for name, w := range st.Windows {
		w.Reset = believed(w.Reset, now)
		if w.Seen.After(now) { // the clock was set back
			w.Seen = now
		}
		if windowWord(name) && len(ws) < maxWindows && w.Used >= 0 && w.Used <= maxUsed && w.end().After(now) {
			ws[name] = w
		}
	}
	return q, ws, nil
}

// encodeBreaker is nil when there is nothing to keep.
func encodeBreaker(b *breaker) []byte {
	st := b.saved()
	if st == nil {
		return nil
	}
	out, err := json.Marshal(st)
	if err != nil { // cannot happen: a time within bounds
		return nil
	}
	return out
}

func decodeBreaker(cfg config.Breaker, b []byte, now time.Time) (*breaker, error) {
	var st breakerState
	if b != nil {
		if err := json.Unmarshal(b, &st); err != nil {
			return newBreaker(cfg, breakerState{}, now), fmt.Errorf("breaker: %w", err)
		}
	}
	return newBreaker(cfg, st, now), nil
}

// restored makes an account's state of what was saved; what cannot be read is
// left out, and said.
func (a *account) restored(saved savedAccount, now time.Time) (err error) {
	var bad error
	a.breaker, err = decodeBreaker(a.cfg.Breaker, saved.breaker, now)
	a.quota, a.windows, bad = decodeQuota(saved.quota, now)
	return errors.Join(err, bad)
}
