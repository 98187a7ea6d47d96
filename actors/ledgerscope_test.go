package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// fakeSums is a usage database that can be told to fail.
type fakeSums struct {
	mu     sync.Mutex
	tokens map[string]int64
	cost   map[string]subjects.USD
	asked  []string
	err    error
	hangs  bool // until the context ends
}

func (f *fakeSums) spent(ctx context.Context, scope, id string) (int64, subjects.USD, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := scope + " " + id
	f.asked = append(f.asked, name)
	if f.hangs {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return 0, 0, ctx.Err()
	}
	return f.tokens[name], f.cost[name], f.err
}

func (f *fakeSums) set(err error, hangs bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.hangs = err, hangs
}

func (f *fakeSums) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	slices.Sort(asked)
	return asked
}

func mustOver(t *testing.T, l *ledger, b bill, wantFree, wantLocal string) {
	t.Helper()
	free, local, err := l.over(context.Background(), b)
	if err != nil || (wantFree == "") != (free == "") || !strings.Contains(free, wantFree) ||
		(wantLocal == "") != (local == "") || !strings.Contains(local, wantLocal) {
		t.Errorf("over says %q, %q, %v; want %q, %q", free, local, err, wantFree, wantLocal)
	}
}

// TestRestart: what the database knows counts from the first call on, is read
// once for each budget, and marks that it has passed are not said again.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testBudgets(t, 1000)
		cfg.Costs.PerRun[config.CostStandard], cfg.Costs.BatchUSD, cfg.Costs.BatchTokens = 500, 400, 300
		sums := &fakeSums{
			cost:   map[string]subjects.USD{"total all": 820, "run r": 400, "batch b": 90, "run full": 501},
			tokens: map[string]int64{"total all": 5e6, "run r": 5e6, "batch b": 170, "batch full": 300},
		}
		l, events := testLedger(t, cfg, sums.spent)
		of := bill{"r", "b"}
		mustOver(t, l, of, "", "")
		if asked := sums.take(); !slices.Equal(asked, []string{"batch b", "run r", "total all"}) {
			t.Errorf("asked for %v", asked)
		}
		e := evenCall(49, 1)
		e.bill = of
		pay(mustReserve(t, l, e), 49, 1)
		if said := events.take(); !slices.Equal(said, []string{"run r usd 90%"}) {
			t.Errorf("said %v", said)
		}
		e.inputTokens = 50
		mustRefuse(t, l, e, `run "r"`, "$0.00005 left")
		e.runID, e.inputTokens = "r2", 81
		mustRefuse(t, l, e, `the budget of batch "b" has 80 tokens left of 300 tokens (batch_cost_limits.max_tokens_per_batch)`)
		e.bill, e.inputTokens = bill{}, 129
		pay(mustReserve(t, l, e), 129, 1)
		mustRefuse(t, l, e, "the total budget is used up")
		if said := events.take(); !slices.Equal(said, []string{"run r usd 100%", "batch b tokens 100%", "total all usd 90%", "total all usd 100%"}) {
			t.Errorf("said %v", said)
		}
		const total = "the total budget is used up: $0.001 spent of $0.001"
		mustOver(t, l, of, total, "")
		mustOver(t, l, bill{"full", "full"}, `the budget of run "full" is used up: $0.000501 spent`,
			`the budget of batch "full" is used up: 300 tokens spent of 300 tokens`)
		if asked := sums.take(); !slices.Equal(asked, []string{"batch full", "run full", "run r2"}) {
			t.Errorf("asked for %v", asked)
		}
		if said := events.take(); len(said) != 0 {
			t.Errorf("said %v", said)
		}
	})
}

// TestAsGoodAsUsedUp: what is left and too little for a small call is used up,
// and that is said; a large call says nothing about the budget.
func TestAsGoodAsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, events := testLedger(t, testBudgets(t, 10_000), nil)
		teach(t, l)
		mustRefuse(t, l, evenCall(10_000, 1))
		if said := events.take(); len(said) != 0 {
			t.Errorf("said %v", said)
		}
		pay(mustReserve(t, l, evenCall(9958, 1)), 9958, 1)
		mustOver(t, l, bill{}, "", "")
		mustRefuse(t, l, evenCall(49, 1), "$0.000039 left of $0.01", "may use $0.00005")
		if said := events.take(); !slices.Equal(said, allMarks) {
			t.Errorf("said %v", said)
		}
		mustOver(t, l, bill{}, "only $0.000039 is left", "")
		l.reconfigure(testBudgets(t, 11_000))
		mustOver(t, l, bill{}, "", "")
	})
}

// TestPeriods: a total begins anew at midnight or on the first of the month, in
// UTC; what is reserved then counts in the new period; all has no end.
func TestPeriods(t *testing.T) {
	for of, want := range map[string]struct {
		ids   [2]string
		after time.Duration
		title string
	}{
		config.PeriodDay:   {[2]string{"2000-01-01", "2000-01-02"}, 24 * time.Hour, "of 2000-01-01"},
		config.PeriodMonth: {[2]string{"2000-01", "2000-02"}, 31 * 24 * time.Hour, "2000-02-01, 00:00 UTC"},
		config.PeriodAll:   {[2]string{"all", ""}, 31 * 24 * time.Hour, "the total budget is"},
	} {
		t.Run(of, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // begins on 2000-01-01, 00:00 UTC
				cfg := testBudgets(t, 100)
				cfg.Costs.TotalPeriod = of
				sums := &fakeSums{cost: map[string]subjects.USD{"total " + want.ids[1]: 7}}
				l, events := testLedger(t, cfg, sums.spent)
				teach(t, l)
				held := mustReserve(t, l, evenCall(9, 1))
				pay(mustReserve(t, l, evenCall(68, 20)), 68, 20)
				pass(want.after - time.Second)
				mustRefuse(t, l, evenCall(9, 2))
				waits, failed := reserveAside(context.Background(), l, evenCall(1, 1))
				if len(failed) != 0 {
					t.Fatal(<-failed)
				}
				pass(2 * time.Second)
				if want.ids[1] == "" {
					mustRefuse(t, l, evenCall(9, 2))
					pay(held, 7, 1)
					pay(<-waits, 1, 1)
					mustOver(t, l, bill{}, want.title, "")
					return
				}
				pay(mustReserve(t, l, evenCall(1, 1)), 1, 1)
				pay(<-waits, 1, 1)
				if st := totalState(t, l); st.ID != want.ids[1] || st.Spent != 11e-6 || st.Reserved != 10e-6 {
					t.Errorf("state %+v", st)
				}
				pay(held, 9, 1)
				pay(mustReserve(t, l, evenCall(77, 1)), 77, 1)
				mustOver(t, l, bill{}, "", "")
				said := events.take()
				wanted := []string{
					"total " + want.ids[0] + " usd 50%", "total " + want.ids[0] + " usd 80%", "total " + want.ids[0] + " usd 90%",
					"total " + want.ids[1] + " usd 50%",
				}
				if !strings.HasPrefix(strings.Join(said, ","), strings.Join(wanted[:3], ",")) || !slices.Contains(said, wanted[3]) {
					t.Errorf("said %v", said)
				}
			})
		})
	}
}

// TestInLineAtMidnight: who waits when the period ends reads what the new one
// has spent before it goes on.
func TestInLineAtMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testBudgets(t, 100)
		cfg.Costs.TotalPeriod = config.PeriodDay
		sums := &fakeSums{cost: map[string]subjects.USD{"total 2000-01-02": 99}}
		l, _ := testLedger(t, cfg, sums.spent)
		teach(t, l)
		held := mustReserve(t, l, evenCall(90, 1))
		got, failed := reserveAside(context.Background(), l, evenCall(10, 1))
		pass(24 * time.Hour)
		held.settle(nil, subjects.Usage{}, false)
		synctest.Wait()
		if len(got) != 0 || subjects.KindOf(<-failed) != subjects.KindBudgetExceeded {
			t.Error("granted 11 although 99 of 100 were spent by others")
		}
	})
}

// TestReadingFails: no call waits longer than loadTime for a database that does
// not answer. Until it does, what this node spends is counted from 0.
func TestReadingFails(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		t.Run(fmt.Sprint("hangs=", hangs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sums := &fakeSums{cost: map[string]subjects.USD{"total all": 90}}
				sums.set(errors.New("broken"), hangs)
				l, _ := testLedger(t, testBudgets(t, 100), sums.spent)
				start := time.Now()
				var calls sync.WaitGroup
				for range 20 {
					calls.Go(func() { pay(mustReserve(t, l, evenCall(1, 1)), 1, 1) })
					pass(50 * time.Millisecond)
				}
				calls.Wait()
				if took := time.Since(start); took > loadTime {
					t.Errorf("calls waited until %v", took)
				}
				if asked := sums.take(); len(asked) != 1 {
					t.Errorf("asked for %v", asked)
				}
				if st := totalState(t, l); st.Known || st.Spent != 40e-6 {
					t.Errorf("state %+v", st)
				}
				pass(readAgain)
				mustOver(t, l, bill{}, "", "") // fails again
				sums.set(nil, false)
				mustOver(t, l, bill{}, "", "")
				pass(readAgain)
				sums.cost["total all"] = 98 + 40
				mustOver(t, l, bill{}, "used up: $0.000138 spent", "")
				if asked := sums.take(); len(asked) != 2 || !totalState(t, l).Known {
					t.Errorf("asked for %v", asked)
				}
			})
		})
	}
}

// TestReaderLeaves: when the call that reads what was spent ends, another that
// waits for it reads; nobody waits longer for that.
func TestReaderLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sums := &fakeSums{cost: map[string]subjects.USD{"total all": 60}}
		sums.set(nil, true)
		l, _ := testLedger(t, testBudgets(t, 100), sums.spent)
		start := time.Now()
		leave := func(after time.Duration) <-chan error {
			ctx, cancel := context.WithTimeout(context.Background(), after)
			_, failed := reserveAside(ctx, l, evenCall(49, 1))
			go func() { <-ctx.Done(); cancel() }()
			return failed
		}
		first, parked, second := leave(500*time.Millisecond), leave(400*time.Millisecond), leave(time.Second)
		got, failed := reserveAside(context.Background(), l, evenCall(29, 1))
		for _, f := range []<-chan error{parked, first, second} {
			if err := <-f; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		synctest.Wait()
		if asked := sums.take(); len(asked) != 3 || len(failed) != 0 {
			t.Errorf("asked for %v", asked)
		}
		r := <-got
		if took := time.Since(start); took != loadTime {
			t.Errorf("granted after %v", took)
		}
		r.settle(nil, subjects.Usage{}, false)
		sums.set(nil, false)
		pass(readAgain)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, _, err := l.over(ctx, bill{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		mustOver(t, l, bill{}, "", "")
		if st := totalState(t, l); !st.Known || st.Spent != 60e-6 {
			t.Errorf("state %+v", st)
		}
	})
}

// TestSpentWhileRead: what is settled while a budget is read counts beside what
// is read.
func TestSpentWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sums := &fakeSums{cost: map[string]subjects.USD{"total all": 3}}
		sums.set(errors.New("broken"), false)
		slow := func(ctx context.Context, scope, id string) (int64, subjects.USD, error) {
			pass(time.Second)
			return sums.spent(ctx, scope, id)
		}
		l, _ := testLedger(t, testBudgets(t, 100), slow)
		pay(mustReserve(t, l, evenCall(1, 1)), 1, 1)
		held := mustReserve(t, l, evenCall(1, 1))
		sums.set(nil, false)
		pass(readAgain)
		go func() { _, _, _ = l.over(context.Background(), bill{}) }()
		synctest.Wait()
		pay(held, 1, 1)
		pass(2 * time.Second)
		if st := totalState(t, l); !st.Known || st.Spent != 5e-6 {
			t.Errorf("state %+v", st)
		}
	})
}

// TestScopesAreForgotten: idle budgets go, those in use stay, and what comes
// back is read again.
func TestScopesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testBudgets(t, config.NoLimit)
		cfg.Costs.PerRun[config.CostStandard] = 100
		sums := &fakeSums{}
		l, _ := testLedger(t, cfg, sums.spent)
		in := func(run string) estimate {
			e := evenCall(1, 1)
			e.runID = run
			return e
		}
		pay(mustReserve(t, l, in("idle")), 1, 1)
		held := mustReserve(t, l, in("held"))
		pass(keptIdle - time.Second)
		pay(mustReserve(t, l, in("used")), 1, 1)
		sums.take()
		pass(2 * time.Second)
		mustOver(t, l, bill{runID: "used"}, "", "")
		names := func() (out []string) {
			for _, st := range l.state(context.Background()) {
				out = append(out, st.ID)
			}
			slices.Sort(out)
			return out
		}
		if got := names(); !slices.Equal(got, []string{"held", "used"}) {
			t.Errorf("kept %v", got)
		}
		mustOver(t, l, bill{runID: "idle"}, "", "")
		pay(held, 1, 1)
		if asked := sums.take(); !slices.Equal(asked, []string{"run idle"}) {
			t.Errorf("asked for %v", asked)
		}
	})
}

// TestManyScopes: above manyScopes those go first that were longest not used, but
// not before their last records are in the database.
func TestManyScopes(t *testing.T) {
	cfg := testBudgets(t, config.NoLimit)
	cfg.Costs.PerRun[config.CostStandard] = 100
	b, now := newBook(cfg, ledgerOptions{}), time.Now()
	run := func(i int) scopeKey { return scopeKey{subjects.BudgetRun, fmt.Sprint(i)} }
	for i := range manyScopes + 100 {
		b.scope(run(i), now)
		b.forget(now)
	}
	if len(b.scopes) != manyScopes+100 {
		t.Errorf("%d are kept", len(b.scopes))
	}
	b.scopes[run(0)].users = 1
	b.forget(now.Add(recordTime))
	if len(b.scopes) != manyScopes || b.scopes[run(0)] == nil || b.scopes[run(100)] != nil || b.scopes[run(101)] == nil {
		t.Errorf("%d are kept", len(b.scopes))
	}
	if shown := b.states(); len(shown) != maxStates {
		t.Errorf("%d are shown", len(shown))
	}
	b.forget(now.Add(keptIdle))
	if len(b.scopes) != 1 {
		t.Errorf("%d are kept", len(b.scopes))
	}
}
