package actors

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

const (
	// probeEvery bounds the wait for the next probe, whatever reset was named.
	probeEvery = time.Hour
	// tinyReset is the reset below which the backoff is taken instead, longestReset
	// the one above which it is: no window is longer than a month.
	tinyReset    = 10 * time.Second
	longestReset = 40 * 24 * time.Hour
	// forgetHold is how long a hold stays after its end when no call comes to probe
	// it.
	forgetHold = 24 * time.Hour
	// maxHeldModels bounds the models that are held back beside each other, and
	// maxHeldName the length of their names: callers may name models freely.
	maxHeldModels = 64
	maxHeldName   = 256
)

// quotaSteps is the wait after the first, the second and each later exhaustion in
// a row (seed 004).
var quotaSteps = [...]time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour}

// quota says what of a provider's account has run out, part of its account's
// state. It is optimistic: nothing is held back before the provider has refused.
//
//	ok --QUOTA_EXHAUSTED--> held, for a step or until the reset that was named
//	held --its time is over, and a call comes--> probed: that call is the trial
//	probed --success--> ok: the count of exhaustions is forgotten
//	probed --QUOTA_EXHAUSTED--> held, the next step
//	probed --anything else--> held: the next call is the trial
//
// The account has such a hold, and each model has one.
type quota struct {
	account *quotaHold
	models  map[string]*quotaHold
	// lifted is the account's seq when a hold was last lifted: an exhaustion of an
	// attempt that began before is no news.
	lifted uint64
	hour   rollingHour
	// softSaid is when the soft limit's mark was last announced.
	softSaid time.Time
}

// quotaHold holds an account or a model back.
type quotaHold struct {
	since, until time.Time
	// resetAt is what the provider says of the end; zero = nothing believable.
	resetAt time.Time
	// times counts the exhaustions in a row.
	times int
	// at is the account's seq when the hold began: a success of an attempt that
	// began before says nothing of it.
	at    uint64
	trial *permit
}

// hold is what routing sees.
func (h *quotaHold) hold(model string) routing.Hold {
	if h == nil {
		return routing.Hold{}
	}
	detail := ""
	if model != "" {
		detail = "for " + model
	}
	return routing.Hold{On: true, Until: h.until, Trial: h.trial != nil, Detail: detail}
}

// exhaust begins the hold or its next step. reset is what the provider named;
// zero = nothing. A reset that had passed when the quota was still exhausted was
// wrong: the one named then is not believed to come before the backoff's step.
func (h *quotaHold) exhaust(now, reset time.Time) {
	step := quotaSteps[min(h.times, len(quotaSteps)-1)]
	wrong := !h.resetAt.IsZero() && !now.Before(h.resetAt)
	h.times++
	h.resetAt = time.Time{}
	wait := step
	if in := reset.Sub(now); !reset.IsZero() && in >= tinyReset && in <= longestReset {
		h.resetAt = reset
		if wait = in; wrong {
			wait = max(in, step)
		}
	}
	h.until = now.Add(min(wait, probeEvery))
}

// over reports whether the hold has been probed by nobody for so long that it
// says nothing any more.
func (h *quotaHold) over(now time.Time) bool {
	end := h.until
	if h.resetAt.After(end) {
		end = h.resetAt
	}
	return h.trial == nil && now.Sub(end) > forgetHold
}

// quotaChange is a hold that began, went on or was lifted (hold nil).
type quotaChange struct {
	model string
	hold  *quotaHold
}

// take makes a permit the trial of what holds its model back. It is asked when no
// hold is in the way.
func (q *quota) take(p *permit) (changed bool) {
	for _, h := range [...]*quotaHold{q.account, q.models[p.model]} {
		if h != nil {
			h.trial, changed = p, true
		}
	}
	return changed
}

// giveBack ends the trials of a permit that have said nothing.
func (q *quota) giveBack(p *permit) (changed bool) {
	for _, h := range [...]*quotaHold{q.account, q.models[p.model]} {
		if h != nil && h.trial == p {
			h.trial, changed = nil, true
		}
	}
	return changed
}

// settle takes the outcome of an attempt and says what changed. seq is the
// account's next one.
func (q *quota) settle(p *permit, o *outcome, now time.Time, seq uint64) []quotaChange {
	switch {
	case o.err == nil:
		return q.succeeded(p, seq)
	case o.err.Kind == subjects.KindQuotaExhausted && p.seq >= q.lifted:
		return q.exhausted(p, o, now, seq)
	}
	return nil
}

// succeeded lifts what held the model back, and what held the account back.
func (q *quota) succeeded(p *permit, seq uint64) (changes []quotaChange) {
	if h := q.account; h != nil && (h.trial == p || p.seq >= h.at) {
		q.account, q.lifted = nil, seq
		changes = append(changes, quotaChange{})
	}
	if h := q.models[p.model]; h != nil && (h.trial == p || p.seq >= h.at) {
		delete(q.models, p.model)
		q.lifted = seq
		changes = append(changes, quotaChange{model: p.model})
	}
	return changes
}

// exhausted holds the account or the model back. Of attempts that ran beside each
// other the first to say so counts.
func (q *quota) exhausted(p *permit, o *outcome, now time.Time, seq uint64) []quotaChange {
	model, h := "", q.account
	if o.err.ModelOnly && p.model != "" {
		model, h = p.model, q.models[p.model]
	}
	switch {
	case len(model) > maxHeldName:
		return nil
	case h == nil:
		h = &quotaHold{since: now}
		q.put(model, h)
	case h.trial != p && p.seq < h.at:
		return nil
	}
	h.exhaust(now, resetOf(o, now))
	h.at, h.trial = seq, nil
	return []quotaChange{{model, h}}
}

// put enters a hold. Of too many models the one that ends first makes room.
func (q *quota) put(model string, h *quotaHold) {
	if model == "" {
		q.account = h
		return
	}
	if len(q.models) >= maxHeldModels {
		delete(q.models, slices.MinFunc(slices.Collect(maps.Keys(q.models)), func(a, b string) int {
			return q.models[a].until.Compare(q.models[b].until)
		}))
	}
	if q.models == nil {
		q.models = map[string]*quotaHold{}
	}
	q.models[model] = h
}

// resetOf is the time that the provider names for the end: its Retry-After, else
// the reset of a window that its headers call rejected or used up; zero = none.
func resetOf(o *outcome, now time.Time) time.Time {
	if after := o.err.RetryAfter; after > 0 {
		return now.Add(min(after, 2*longestReset))
	}
	return rejectedUntil(o.limits, now)
}

// reset lifts every hold.
func (q *quota) reset(seq uint64) (changes []quotaChange) {
	if q.account != nil {
		changes = append(changes, quotaChange{})
	}
	for _, model := range slices.Sorted(maps.Keys(q.models)) {
		changes = append(changes, quotaChange{model: model})
	}
	q.account, q.models = nil, nil
	if len(changes) > 0 {
		q.lifted = seq
	}
	return changes
}

// prune forgets the holds that nobody has probed for a day.
func (q *quota) prune(now time.Time) (changed bool) {
	if q.account != nil && q.account.over(now) {
		q.account, changed = nil, true
	}
	for model, h := range q.models {
		if h.over(now) {
			delete(q.models, model)
			changed = true
		}
	}
	return changed
}

// holds are what routing sees of the models; nil = none.
func (q *quota) holds() map[string]routing.Hold {
	if len(q.models) == 0 {
		return nil
	}
	out := make(map[string]routing.Hold, len(q.models))
	for model, h := range q.models {
		out[model] = h.hold(model)
	}
	return out
}

// softLimit is the mark above which a provider's completions of an hour are
// announced; 0 = none.
func softLimit(t *config.QuotaTracking) int64 {
	if t == nil || !t.Enabled {
		return 0
	}
	return int64(t.SoftLimitPerHour)
}

// count takes a completion into the rolling hour, and reports whether the mark is
// to be announced.
func (q *quota) count(tokens, mark int64, now time.Time) (announce bool) {
	q.hour.add(tokens, now)
	if mark == 0 || now.Sub(q.softSaid) < time.Hour && !now.Before(q.softSaid) {
		return false
	}
	if n, _ := q.hour.sum(now); n <= mark {
		return false
	}
	q.softSaid = now
	return true
}

// info is what people see, without the windows.
func (q *quota) info(track *config.QuotaTracking, now time.Time) subjects.QuotaInfo {
	info := subjects.QuotaInfo{State: subjects.QuotaOK, Tracked: track != nil && track.Enabled, SoftLimit: softLimit(track)}
	info.Completions, info.Tokens = q.hour.sum(now)
	if info.SoftLimit > 0 && info.Completions > info.SoftLimit {
		info.State = subjects.QuotaSoftLimit
	}
	if h := q.account; h != nil {
		info.State = subjects.QuotaExhausted
		info.Exhausted = append(info.Exhausted, h.info(""))
	}
	for model, h := range q.models {
		info.Exhausted = append(info.Exhausted, h.info(model))
	}
	slices.SortFunc(info.Exhausted, func(a, b subjects.QuotaHold) int { return strings.Compare(a.Model, b.Model) })
	return info
}

func (h *quotaHold) info(model string) subjects.QuotaHold {
	return subjects.QuotaHold{
		Model: model, Since: subjects.Time{Time: h.since}, RetryAt: subjects.Time{Time: h.until},
		ResetAt: optionalTime(h.resetAt), Times: h.times,
	}
}

// optionalTime is nil for the zero time.
func optionalTime(t time.Time) *subjects.Time {
	if t.IsZero() {
		return nil
	}
	return &subjects.Time{Time: t}
}

// rollingHour counts completions and their tokens by the minute.
type rollingHour [60]hourMinute

type hourMinute struct {
	minute              int64 // since 1970
	completions, tokens int64
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

func (r *rollingHour) add(tokens int64, now time.Time) {
	n := minuteOf(now)
	m := &r[uint64(n)%uint64(len(r))] //nolint:gosec // an index
	if m.minute != n {
		*m = hourMinute{minute: n}
	}
	m.completions++
	m.tokens += max(tokens, 0)
}

// live reports whether a minute is one of the last sixty.
func (m *hourMinute) live(now int64) bool { return m.minute <= now && m.minute > now-60 }

func (r *rollingHour) sum(now time.Time) (completions, tokens int64) {
	n := minuteOf(now)
	for i := range r {
		if m := &r[i]; m.live(n) {
			completions += m.completions
			tokens += m.tokens
		}
	}
	return completions, tokens
}
