package actors

import (
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// unified are Claude's headers of one window.
func unified(name string, used float64, resetIn time.Duration, status string) map[string]string {
	p := "anthropic-ratelimit-unified-" + name
	return map[string]string{
		"anthropic-ratelimit-unified-status": status, p + "-status": status,
		p + "-utilization": strconv.FormatFloat(used, 'f', -1, 64),
		p + "-reset":       strconv.FormatInt(time.Now().Add(resetIn).Unix(), 10),
	}
}

func reporting(limits map[string]string) outcome { return outcome{limits: limits} }

// TestReadWindow holds the recorded forms (WIRE.md B.4, C) and what is left out.
func TestReadWindow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	const u = "anthropic-ratelimit-unified-"
	for name, tc := range map[string]struct {
		limits map[string]string
		want   windows
	}{
		"claude's two": {
			map[string]string{
				u + "status": "allowed", u + "reset": "1774015200", u + "representative-claim": "five_hour", u + "fallback-percentage": "0.5",
				u + "5h-status": "allowed", u + "5h-reset": "1774015200", u + "5h-utilization": "0.42",
				u + "7d_oi-status": "rejected", u + "7d_oi-reset": "1774224000", u + "7d_oi-utilization": "1.01",
				u + "overage-status": "rejected", u + "overage-disabled-reason": "org_level_disabled", u + "overage-in-use": "true",
			},
			windows{
				"5h":    {Used: 0.42, Status: "allowed", Reset: time.Unix(1774015200, 0)},
				"7d_oi": {Used: 1.01, Status: "rejected", Reset: time.Unix(1774224000, 0)},
			},
		},
		"copilot's": {
			map[string]string{
				"x-quota-snapshot-chat":                 "ent=-1&ov=0.0&ovPerm=false&rem=100.0&rst=2026-04-01T00%3A00%3A00Z",
				"x-quota-snapshot-premium_interactions": "ent=300&ov=0.0&ovPerm=false&rem=35.5&rst=2026-04-01T00%3A00%3A00Z",
				"x-quota-snapshot-premium_models":       "ent=300&ov=30&ovPerm=true&rem=0.0&rst=2026-04-01T00:00:00Z&totRem=0.0",
				"x-quota-snapshot-completions":          "ent=2000&rem=88.5",
				"x-usage-ratelimit-session":             "rem=5.7&rst=2026-03-20T14%3A35%3A37Z",
				"x-usage-ratelimit-weekly":              "ent=0&ov=0.0&ovPerm=false&rem=95.9&rst=2026-03-27T00%3A00%3A00Z",
			},
			windows{
				"chat":                 {Status: "unlimited", Reset: april},
				"premium_interactions": {Used: 0.645, Reset: april},
				"premium_models":       {Used: 1.1, Reset: april},
				"completions":          {Used: 0.115},
				"session":              {Used: 0.943, Reset: time.Date(2026, 3, 20, 14, 35, 37, 0, time.UTC)},
				"weekly":               {Used: 0.041, Reset: time.Date(2026, 3, 27, 0, 0, 0, 0, time.UTC)},
			},
		},
		"an end too far": {
			map[string]string{u + "5h-utilization": "0.5", u + "5h-reset": "99999999999"},
			windows{"5h": {Used: 0.5}},
		},
		"over already": {map[string]string{u + "5h-utilization": "0.5", u + "5h-reset": "1774000000"}, windows{}},
		"not so": {
			map[string]string{
				u + "5h-utilization": "NaN", u + "6h-utilization": "Inf", u + "7h-utilization": "-0.1", u + "8h-utilization": "1e300",
				u + "9h-utilization": "", u + "-utilization": "0.5", u + "utilization": "0.5", u + "A B-utilization": "0.5", u + "1h-reset": "1774015200",
				"x-quota-snapshot-a": "", "x-quota-snapshot-b": "rem=x", "x-quota-snapshot-c": "rem=101", "x-quota-snapshot-d": "%zz",
				"x-quota-snapshot-": "rem=5", "x-usage-ratelimit-e\n": "rem=5", "x-ratelimit-remaining-requests": "5",
			},
			windows{},
		},
		"a status that is no word": {map[string]string{u + "5h-utilization": "0.5", u + "5h-status": "<b>"}, windows{"5h": {Used: 0.5}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := windows{}
			got.read(tc.limits, now)
			if len(got) != len(tc.want) {
				t.Errorf("%+v", got)
			}
			for name, w := range tc.want {
				g := got[name]
				if math.Abs(g.Used-w.Used) > 1e-9 || g.Status != w.Status || !g.Reset.Equal(w.Reset) || !g.Seen.Equal(now) {
					t.Errorf("%s: %+v, not %+v", name, g, w)
				}
			}
		})
	}
}

// TestWindowsAreBounded: many names leave the first, and those that are over make
// room.
func TestWindowsAreBounded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		for i := range 3 * maxWindows {
			b.try(reporting(unified("w"+strconv.Itoa(i), 0.5, time.Hour, "allowed")))
		}
		if n := len(b.about().quota.Windows); n != maxWindows {
			t.Errorf("%d windows", n)
		}
		pass(time.Hour)
		b.try(reporting(unified("new", 0.5, time.Hour, "allowed")))
		if ws := b.about().quota.Windows; len(ws) != 1 || ws[0].Name != "new" {
			t.Errorf("%+v", ws)
		}
	})
}

// TestWindowsAreShown with their resets, kept through a restart, and dropped when
// they are over. A window that is used up is no exhaustion.
func TestWindowsAreShown(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.try(reporting(unified("7d", 0.41, 50*time.Hour, "allowed")), reporting(unified("5h", 1.01, time.Hour, "rejected")))
		b = b.reopened(bankConfig())
		q := b.about().quota
		if len(q.Windows) != 2 || q.State != subjects.QuotaOK {
			t.Fatalf("%+v", q)
		}
		if w := q.Windows[0]; w.Name != "5h" || w.Used != 1.01 || w.Status != "rejected" || time.Until(w.ResetAt.Time) != time.Hour || w.HeldFor != "" {
			t.Errorf("%+v", w)
		}
		b.try(served)
		pass(time.Hour)
		if q := b.about().quota; len(q.Windows) != 1 || q.Windows[0].Name != "7d" {
			t.Errorf("%+v", q)
		}
		if n, err := b.resetQuota(t.Context(), "p"); n != 0 || err != nil || len(b.about().quota.Windows) != 0 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// TestReserve keeps the last part of a window for one class until it renews, by the
// time alone, by a report that says so, or by another configuration.
func TestReserve(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, b *bank) {
		b.reconfigure(keepingShares())
		b.try(reporting(unified("5h", 0.79, time.Hour, "allowed")))
		if b.published().Withheld != nil {
			t.Fatalf("%+v", b.published())
		}
		withheld := func() routing.Hold {
			t.Helper()
			b.take().release() // people are served
			h := b.refusedOf("m", subjects.ClassIngestion, routing.ReasonReserve)
			if b.published().Withheld[subjects.ClassIngestion] != h || len(b.published().Withheld) != 1 {
				t.Fatalf("%+v", b.published())
			}
			return h
		}
		b.try(reporting(unified("5h", 0.8, time.Hour, "allowed")))
		if h := withheld(); time.Until(h.Until) != time.Hour || h.Detail != "the rest of the window 5h is kept for interactive" {
			t.Fatalf("%+v", h)
		}
		if w := b.about().quota.Windows[0]; w.HeldFor != subjects.ClassInteractive {
			t.Errorf("%+v", w)
		}
		b.try(reporting(unified("7d", 0.95, 3*time.Hour, "allowed_warning")))
		if h := withheld(); time.Until(h.Until) != 3*time.Hour {
			t.Fatalf("%+v", h)
		}
		pass(time.Hour)
		withheld()
		b = b.reopened(keepingShares())
		if h := withheld(); time.Until(h.Until) != 2*time.Hour {
			t.Fatalf("%+v", h)
		}
		pass(2 * time.Hour)
		synctest.Wait()
		if st := b.published(); len(st.Withheld) != 0 {
			t.Errorf("still %+v when the window is over", st)
		}
		b.try(reporting(unified("5h", 0.9, time.Hour, "allowed")))
		withheld()
		b.try(reporting(unified("5h", 0.1, 5*time.Hour, "allowed")))
		if st := b.published(); len(st.Withheld) != 0 {
			t.Errorf("still %+v when the window has renewed", st)
		}
		b.try(reporting(unified("5h", 0.9, time.Hour, "allowed")))
		withheld()
		b.reconfigure(bankConfig())
		if st := b.published(); len(st.Withheld) != 0 {
			t.Errorf("still %+v without a reserve", st)
		}
	})
}

// TestReserveOfTwoClasses: each has a part; two never shut each other out, and what
// has no end, or is paid beyond the plan, is kept for nobody.
func TestReserveOfTwoClasses(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ws := windows{"5h": {Used: 0.95, Reset: now.Add(time.Hour), Seen: now}}
	for _, tc := range []struct {
		people, batch float64
		held          string
	}{{0.2, 0.1, subjects.ClassIngestion}, {0.1, 0.2, subjects.ClassInteractive}, {0, 0.1, subjects.ClassInteractive}, {0.04, 0, ""}, {0, 0, ""}} {
		holds, next := ws.withheld(map[string]float64{subjects.ClassInteractive: tc.people, subjects.ClassIngestion: tc.batch}, now)
		if (len(holds) != 0) != (tc.held != "") || holds[tc.held].On != (tc.held != "") || next.IsZero() != (tc.held == "") {
			t.Errorf("%+v: %+v", tc, holds)
		}
	}
	if holds, _ := ws.withheld(map[string]float64{subjects.ClassInteractive: 0.3, subjects.ClassIngestion: 0.3}, now); len(holds) != 1 {
		t.Errorf("equal parts: %+v", holds)
	}
	reserve := map[string]float64{subjects.ClassInteractive: 1}
	for name, w := range map[string]window{
		"overage": {Used: 1, Seen: now}, "chat": {Status: "unlimited", Seen: now}, "over": {Used: 1, Reset: now, Seen: now}, "old": {Used: 1, Seen: now.Add(-time.Hour)},
	} {
		if holds, _ := (windows{name: w}).withheld(reserve, now); holds != nil {
			t.Errorf("%s: %+v", name, holds)
		}
	}
	if holds, next := (windows{"undated": {Used: 1, Seen: now}}).withheld(reserve, now); !holds[subjects.ClassIngestion].Until.Equal(now.Add(time.Hour)) || !next.Equal(now.Add(time.Hour)) {
		t.Errorf("%+v", holds)
	}
}

// FuzzReadWindows: whatever a provider sends, a window is within its bounds and can
// be saved and restored.
func FuzzReadWindows(f *testing.F) {
	const u = "anthropic-ratelimit-unified-"
	f.Add(u+"5h-utilization", "0.42", u+"5h-reset", "1774015200", u+"5h-status", "rejected")
	f.Add("x-quota-snapshot-chat", "ent=-1&ov=0.0&ovPerm=false&rem=100.0&rst=2026-04-01T00%3A00%3A00Z", u+"status", "rejected", u+"reset", "1e18")
	f.Add("x-usage-ratelimit-weekly", "rem=-1e9&rst=9999-12-31T23:59:59Z", u+"7d-utilization", "0x1p-2", u+"7d-reset", "-1")
	f.Add("x-quota-snapshot-a", "rem=5&ent=1e-300&ov=1e300", "", "", u+"reset", "NaN")
	now := time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2, k3, v3 string) {
		limits := map[string]string{k1: v1, k2: v2, k3: v3}
		ws := windows{}
		ws.read(limits, now)
		for name, w := range ws {
			if !windowWord(name) || w.Status != "" && !windowWord(w.Status) || !(w.Used >= 0 && w.Used <= maxUsed) || !w.end().After(now) || w.end().Sub(now) > longestReset {
				t.Errorf("%q: %+v", name, w)
			}
		}
		if end := rejectedUntil(limits, now); !end.IsZero() && (!end.After(now) || end.Sub(now) > longestReset) {
			t.Errorf("rejected until %s", end)
		}
		q := &quota{}
		h := &quotaHold{since: now}
		h.exhaust(now, resetOf(&outcome{err: subjects.Errorf(subjects.KindQuotaExhausted, "no"), limits: limits}, now))
		q.put("", h)
		if wait := h.until.Sub(now); wait < tinyReset || wait > probeEvery {
			t.Errorf("held for %s", wait)
		}
		saved := encodeQuota(q, ws, now)
		_, again, err := decodeQuota(saved, now)
		if err != nil || len(again) != len(ws) {
			t.Errorf("%v: %s", err, saved)
		}
	})
}

// FuzzDecodeAccount: whatever was saved, an account comes of it that holds nobody
// back for longer than its bounds.
func FuzzDecodeAccount(f *testing.F) {
	f.Add([]byte(`{"failures":5,"opened":1,"reason":"TIMEOUT","until":"2026-03-20T12:01:00Z"}`))
	f.Add([]byte(`{"account":{"since":"2026-03-20T11:00:00Z","until":"2026-03-20T12:40:00Z","reset":"0001-01-01T00:00:00Z","times":3},"minutes":[{"minute":29566800,"completions":4,"tokens":12}],"windows":{"5h":{"used":0.4,"reset":"2026-03-20T13:00:00Z","seen":"2026-03-20T12:00:00Z"}}}`))
	cfg := bankConfig().Breaker
	f.Fuzz(func(t *testing.T, b []byte) {
		now := time.Now()
		br, _ := decodeBreaker(cfg, b, now)
		if br.hold().On && br.until.Sub(now) > cfg.MaxPause+time.Minute {
			t.Errorf("open for %s", br.until.Sub(now))
		}
		q, ws, _ := decodeQuota(b, now)
		if q.account != nil && q.account.until.Sub(now) > probeEvery || len(q.models) > maxHeldModels || len(ws) > maxWindows {
			t.Errorf("%+v", q)
		}
		if c, n := q.hour.sum(now); c < 0 || n < 0 {
			t.Logf("sums overflow: %d, %d", c, n)
		}
		if len(encodeQuota(q, ws, now)) > maxSavedState {
			t.Error("too long")
		}
	})
}
