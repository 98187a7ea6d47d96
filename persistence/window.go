package persistence

import (
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

const (
	defaultHours = 24
	maxHours     = 24 * 3660
	// maxStep is the longest step of a timeline, in minutes: 31 days.
	maxStep = 44_640
	// autoBuckets bounds the timeline of a query without a step, maxBuckets that
	// of one with a step.
	autoBuckets = 500
	maxBuckets  = 1_500

	minutesPerWeek = 7 * 24 * 60
	// mondayMinute is 1970-01-05, the first Monday, in minutes since 1970.
	mondayMinute = 4 * 24 * 60
)

// steps are what a query without a step may get, in minutes.
var steps = [...]int{1, 2, 5, 10, 15, 30, 60, 120, 240, 360, 720, 1440, minutesPerWeek, 2 * minutesPerWeek, maxStep}

// window is the time a summary is about, in minutes since 1970, UTC.
type window struct {
	hours, step int
	from, to    int64 // [from, to), multiples of step
}

// windowOf checks the query and places its window: it ends with the bucket that
// now is in and begins with the one that now − hours is in.
func windowOf(q subjects.UsageQuery, now time.Time) (window, error) {
	w := window{hours: q.Hours, step: q.BucketMinutes}
	if w.hours == 0 {
		w.hours = defaultHours
	}
	if w.hours < 1 || w.hours > maxHours {
		return w, subjects.Errorf(subjects.KindValidation, "hours must be 1 to %d, not %d", maxHours, q.Hours)
	}
	if w.step < 0 || w.step > maxStep {
		return w, subjects.Errorf(subjects.KindValidation, "bucketMinutes must be 1 to %d, or 0 for a suitable one, not %d", maxStep, w.step)
	}
	minutes := w.hours * 60
	if w.step == 0 {
		w.step = autoStep(minutes)
	} else if n := bucketsAtMost(minutes, w.step); n > maxBuckets {
		least := (minutes + maxBuckets - 2) / (maxBuckets - 1)
		return w, subjects.Errorf(subjects.KindValidation,
			"bucketMinutes %d gives %d buckets in %d hours and at most %d are given: use %d or more, or leave it out",
			w.step, n, w.hours, maxBuckets, least)
	}
	end := floorDiv(now.Unix(), 60)
	w.from = w.floor(end - int64(minutes))
	w.to = w.floor(end) + int64(w.step)
	return w, nil
}

func autoStep(minutes int) int {
	for _, s := range steps {
		if bucketsAtMost(minutes, s) <= autoBuckets {
			return s
		}
	}
	return maxStep
}

// bucketsAtMost is the number of buckets that a window of so many minutes has
// wherever it begins: the parts of a bucket at both ends are whole ones.
func bucketsAtMost(minutes, step int) int { return (minutes+step-1)/step + 1 }

// floor is the start of the bucket that minute m is in. Buckets are counted from
// 1970-01-01, whole weeks from the Monday after, so that days begin at midnight
// and weeks on Monday, UTC.
func (w window) floor(m int64) int64 {
	var origin int64
	if w.step%minutesPerWeek == 0 {
		origin = mondayMinute
	}
	return floorDiv(m-origin, int64(w.step))*int64(w.step) + origin
}

// floorDiv rounds down, also below zero.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func timeOf(minute int64) subjects.Time { return subjects.Time{Time: time.Unix(minute*60, 0).UTC()} }
