package sluice_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/subjects"
)

// TestFallbackDiagram walks down the seed's diagram, and up again as each comes
// back: Copilot's quota, Groq's breaker, Claude Code's quota, Anthropic, DMR.
func TestFallbackDiagram(t *testing.T) {
	t.Parallel()
	virtually(t, []string{"copilot", "groq", "claude-code", "anthropic", "dmr"}, nil, func(v *virtual) {
		v.served("copilot")
		v.up.on("copilot", noQuota)
		v.served("groq")
		v.up.count("copilot")
		v.served("groq")
		if n := v.up.count("copilot"); n != 0 {
			t.Errorf("the exhausted account was asked %d times", n)
		}
		v.up.on("groq", broken)
		v.served("claude-code") // three tries
		v.served("claude-code") // the fifth opens the breaker
		v.up.count("groq")
		v.served("claude-code")
		if n := v.up.count("groq"); n != 0 || v.provider("groq").Breaker.State != subjects.BreakerOpen {
			t.Errorf("groq was asked %d times, %+v", n, v.provider("groq").Breaker)
		}
		v.up.on("claude-code", noQuota)
		v.served("anthropic")
		v.up.on("anthropic", refused)
		v.served("dmr")
		v.up.on("dmr", broken)
		_, err := v.call()
		if err == nil || err.Kind != subjects.KindNoProvider || err.RetryAfter <= 0 || err.RetryAfter > time.Minute {
			t.Fatalf("the end: %v, retry after %s", err, err.RetryAfter)
		}
		trail := show(err.Attempts)
		for _, part := range []string{
			`{"provider":"copilot","outcome":"skipped","reason":"quota","ms":0}`, `{"provider":"groq","outcome":"skipped","reason":"breaker","ms":0}`,
			`{"provider":"claude-code","outcome":"skipped","reason":"quota","ms":0}`, `"provider":"anthropic"`, `"provider":"dmr"`,
		} {
			if !strings.Contains(trail, part) {
				t.Errorf("the trail has no %s: %s", part, trail)
			}
		}
		for _, id := range []string{"copilot", "groq", "claude-code", "anthropic", "dmr"} {
			v.up.on(id, nil)
		}
		v.pass(time.Minute + time.Second)
		v.served("groq") // its trial call
		v.pass(4 * time.Minute)
		v.served("copilot")
		synctest.Wait()
		for _, s := range []string{"llm.quota.copilot", "llm.breaker.groq"} {
			if v.events[s] < 2 {
				t.Errorf("%s was said %d times", s, v.events[s])
			}
		}
	})
}

// TestTableOfErrors holds each row of the contract's table of errors: how often the
// same provider is asked, whether the next one is, and what the breaker does.
func TestTableOfErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fails  fails
		tries  int
		next   bool
		counts int // failures that the breaker counts after one call
		opens  bool
		kind   subjects.Kind
	}{
		"VALIDATION_ERROR":     {badPrompt, 1, false, 0, false, subjects.KindValidation},
		"CONTENT_POLICY":       {badContent, 1, false, 0, false, subjects.KindContentPolicy},
		"AUTH_ERROR":           {badKey, 1, true, 0, true, subjects.KindAuth},
		"QUOTA_EXHAUSTED":      {noQuota, 1, true, 0, false, subjects.KindQuotaExhausted},
		"RATE_LIMITED":         {tooFast, 3, true, 0, false, subjects.KindRateLimited},
		"PROVIDER_ERROR":       {broken, 3, true, 3, false, subjects.KindProvider},
		"TIMEOUT":              {hangs, 1, true, 1, false, subjects.KindTimeout},
		"PROVIDER_UNAVAILABLE": {refused, 1, true, 1, false, subjects.KindProviderUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, []string{"groq", "openai"}, nil, func(v *virtual) {
				v.up.on("groq", c.fails)
				start := time.Now()
				res, err := v.call()
				if n := v.up.count("groq"); n != c.tries {
					t.Errorf("asked %d times, want %d", n, c.tries)
				}
				switch {
				case c.next && (err != nil || res.Provider != "openai"):
					t.Errorf("the next in chain does not answer: %v", err)
				case !c.next && (err == nil || err.Kind != c.kind || v.up.count("openai") != 0):
					t.Errorf("%v, openai asked", err)
				case c.next && res.Attempts[1].Outcome != string(c.kind): // the first is copilot, skipped
					t.Errorf("trail %s", show(res.Attempts))
				}
				if c.kind == subjects.KindRateLimited && time.Since(start) < 14*time.Second {
					t.Errorf("Retry-After was not heeded: %s", time.Since(start))
				}
				b := v.provider("groq").Breaker
				if (b.State == subjects.BreakerOpen) != c.opens || b.Failures != c.counts && !c.opens {
					t.Errorf("breaker %+v", b)
				}
			})
		})
	}
}

// TestEndOfChain: 429 when all only wait for a limit, 503 when not, with the
// soonest time; the one provider's own error when it was the only one.
func TestEndOfChain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		groq, openai fails
		status       int
		least, most  time.Duration
	}{
		"limits":             {noQuota, tooFast, 429, 7 * time.Second, 7 * time.Second},
		"quotas":             {noQuota, noQuota, 429, 5 * time.Minute, 5 * time.Minute},
		"a_limit,_a_failure": {noQuota, refused, 503, 1, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, []string{"groq", "openai"}, nil, func(v *virtual) {
				v.up.on("groq", c.groq)
				v.up.on("openai", c.openai)
				for range 2 { // as they fail, and as they are passed by
					_, err := v.call()
					if err == nil || err.Kind != subjects.KindNoProvider || err.Status() != c.status || err.RetryAfter < c.least-time.Second || err.RetryAfter > c.most {
						t.Errorf("%v, status %d, retry after %s", err, err.Status(), err.RetryAfter)
					}
				}
			})
		})
	}
}

// TestBreakerHalfOpen: after the pause one call tries while the rest pass by; the
// pause doubles up to half an hour; a success resets all.
func TestBreakerHalfOpen(t *testing.T) {
	t.Parallel()
	virtually(t, []string{"groq", "openai"}, func(c *config.Config) { c.Retry.MaxAttempts = 1 }, func(v *virtual) {
		v.up.on("groq", broken)
		for range 5 {
			v.served("openai")
		}
		pause := time.Minute
		for range 7 {
			v.up.count("groq")
			v.pass(pause - time.Second)
			v.served("openai")
			if n := v.up.count("groq"); n != 0 {
				t.Fatalf("asked %d times before the pause of %s was over", n, pause)
			}
			v.pass(2 * time.Second)
			v.served("openai")
			v.served("openai")
			if n := v.up.count("groq"); n != 1 {
				t.Fatalf("%d trial calls after the pause of %s", n, pause)
			}
			pause = min(2*pause, 30*time.Minute)
		}
		release := make(chan struct{})
		v.up.on("groq", func(int, *http.Request) (*http.Response, error) { <-release; return nil, nil })
		v.pass(pause + time.Second)
		trial := make(chan string, 1)
		go func() { res, _ := v.call(); trial <- res.Provider }()
		v.pass(time.Second)
		v.served("openai") // passes by
		if b := v.provider("groq").Breaker; b.State != subjects.BreakerHalfOpen {
			t.Errorf("while the trial call runs: %+v", b)
		}
		if s := v.route(subjects.RouteQuery{}).Summary; !strings.Contains(s, "groq skipped: breaker half-open") {
			t.Error(s)
		}
		close(release)
		if by := <-trial; by != "groq" {
			t.Errorf("the trial was answered by %s", by)
		}
		v.served("groq")
		if b := v.provider("groq").Breaker; b.State != subjects.BreakerClosed || b.Failures != 0 || b.Opened != 0 {
			t.Errorf("after a success: %+v", b)
		}
	})
}

// TestQuotaBackoff: 5 minutes, 15, an hour; a success resets; a reset by hand.
func TestQuotaBackoff(t *testing.T) {
	t.Parallel()
	virtually(t, []string{"copilot", "groq"}, nil, func(v *virtual) {
		v.up.on("copilot", noQuota)
		v.served("groq")
		for _, pause := range []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour, time.Hour} {
			v.up.count("copilot")
			v.pass(pause - time.Second)
			v.served("groq")
			if n := v.up.count("copilot"); n != 0 {
				t.Fatalf("asked before %s were over", pause)
			}
			v.pass(2 * time.Second)
			v.served("groq")
			if n := v.up.count("copilot"); n != 1 {
				t.Fatalf("asked %d times after %s", n, pause)
			}
		}
		v.up.on("copilot", nil)
		var reply subjects.QuotaResetReply
		if err := subjects.Query(v.ctx, v.node.Client(), subjects.AdminQuotaReset, subjects.QuotaResetRequest{Provider: "copilot"}, &reply); err != nil || reply.Lifted != 1 {
			t.Errorf("%+v, %v", reply, err)
		}
		v.served("copilot")
		v.up.on("copilot", noQuota)
		v.served("groq")
		v.pass(5*time.Minute + time.Second) // the first step again
		v.up.on("copilot", nil)
		v.served("copilot")
	})
}

// TestRestart: a node that is restarted in the middle of a quota's backoff, with
// an open breaker and a budget in use, behaves as if it had not been.
func TestRestart(t *testing.T) {
	t.Parallel()
	edit := func(c *config.Config) {
		c.Retry.MaxAttempts = 1
		c.Costs.PerRun[config.CostStandard] = 1000 // micro-dollars: two calls and a half of gpt-5.4
	}
	virtually(t, []string{"copilot", "groq", "openai", "ollama"}, edit, func(v *virtual) {
		v.up.on("copilot", noQuota)
		v.up.on("groq", broken)
		run := func(r *subjects.Request) { r.RunID = "run-1"; r.MaxTokens = ptr(10) }
		for range 5 {
			v.served("openai")
		}
		v.served("openai", run)
		v.pass(20 * time.Second)
		v.restart()
		v.up.count("copilot")
		v.up.count("groq")
		if b := v.provider("groq").Breaker; b.State != subjects.BreakerOpen {
			t.Errorf("the breaker: %+v", b)
		}
		v.served("openai", run)
		v.served("ollama", run) // the third would pass the limit
		if n := v.up.count("copilot") + v.up.count("groq"); n != 0 {
			t.Errorf("%d requests to who must be passed by", n)
		}
		v.pass(40 * time.Second)
		v.served("openai")
		if n := v.up.count("groq"); n != 1 || v.up.count("copilot") != 0 {
			t.Errorf("%d trial calls a minute after the breaker opened", n)
		}
		v.restart()
		if b := v.provider("groq").Breaker; b.State != subjects.BreakerOpen || b.Opened != 2 {
			t.Errorf("the breaker, opened again: %+v", b)
		}
		v.up.on("copilot", nil)
		v.pass(4 * time.Minute)
		v.served("copilot")
	})
}

// TestCapabilityCollapse: when the only provider that can do tools is exhausted,
// no other gets the call without its tools.
func TestCapabilityCollapse(t *testing.T) {
	t.Parallel()
	tools := func(r *subjects.Request) { r.Tools = []subjects.Tool{{Name: "look"}} }
	weaken := func(ids ...string) func(c *config.Config) {
		return func(c *config.Config) {
			for _, id := range ids {
				c.Providers[id].Capabilities = []string{"streaming"}
			}
		}
	}
	t.Run("the_only_one", func(t *testing.T) {
		virtually(t, []string{"copilot", "groq", "openai"}, weaken("groq", "openai"), func(v *virtual) {
			v.served("copilot", tools)
			v.up.on("copilot", noQuota)
			for range 2 {
				_, err := v.call(tools)
				if err == nil || err.Kind != subjects.KindCapabilityMissing || err.Status() != 422 {
					t.Errorf("%v", err)
				}
			}
			if n := v.up.count("groq") + v.up.count("openai"); n != 0 {
				t.Errorf("%d calls went to who cannot do tools", n)
			}
			v.served("groq")
		})
	})
	t.Run("one_of_two", func(t *testing.T) {
		virtually(t, []string{"copilot", "groq", "openai"}, weaken("groq"), func(v *virtual) {
			v.up.on("copilot", noQuota)
			v.served("openai", tools)
			v.served("openai", tools)
		})
	})
}

// TestBudgetUnderAFlood: 1,000 calls at once against a budget for 100, of a
// provider that takes its time: as many are served as fit, and the others by the
// local runner; nothing is overrun and nothing is left.
func TestBudgetUnderAFlood(t *testing.T) {
	t.Parallel()
	const cost, limit = 400, 100 * 400 // micro-dollars: 100 tokens in, 10 out, of gpt-5.4
	edit := func(c *config.Config) { c.Costs.PerRun[config.CostStandard] = limit }
	virtually(t, []string{"openai", "ollama"}, edit, func(v *virtual) {
		v.up.on("openai", func(n int, _ *http.Request) (*http.Response, error) {
			v.pass(time.Duration(n%7+1) * time.Second)
			return nil, nil
		})
		served := make(chan string, 1000)
		for range cap(served) {
			go func() {
				res, err := v.call(func(r *subjects.Request) { r.RunID = "flood" })
				if err != nil {
					served <- err.Error()
					return
				}
				served <- res.Provider
			}()
		}
		count := map[string]int{}
		for range cap(served) {
			count[<-served]++
		}
		if count["openai"] != limit/cost || count["ollama"] != 1000-limit/cost || v.up.count("openai") != limit/cost {
			t.Errorf("%v", count)
		}
		var sum subjects.UsageSummary
		if err := subjects.Query(v.ctx, v.node.Client(), subjects.QueryUsageSummary, nil, &sum); err != nil || sum.Totals.CostUSD != limit || sum.Totals.Calls != 1000 {
			t.Errorf("%+v, %v", sum.Totals, err)
		}
		synctest.Wait()
		if n := v.events[subjects.BudgetStatus]; n != 4 {
			t.Errorf("%d marks were said", n)
		}
		v.served("openai")
	})
}

// byWord classifies by a word in the text.
type byWord struct{}

// Classify implements hooks.SensitivityClassifier.
func (byWord) Classify(_ context.Context, c *hooks.Content) (*hooks.Classification, error) {
	for _, word := range []string{hooks.Confidential, hooks.Internal} {
		if strings.Contains(c.Text, word) {
			return &hooks.Classification{Sensitivity: word}, nil
		}
	}
	return &hooks.Classification{Sensitivity: hooks.Public}, nil
}

// TestSensitivity: who may see what, and what is seen of it.
func TestSensitivity(t *testing.T) {
	t.Parallel()
	edit := func(c *config.Config) {
		c.Sensitivity.Allow = map[string][]string{config.Internal: {"openai", "ollama"}, config.Confidential: {config.AllowLocal}}
	}
	virtually(t, []string{"groq", "openai", "ollama"}, edit, func(v *virtual) {
		for word, want := range map[string]string{"public": "groq", "internal": "openai", "confidential": "ollama"} {
			text := "this is " + word
			v.served(want, func(r *subjects.Request) { r.Messages[0].Content = subjects.Text(text) })
			row := recentRows(v.ctx, t, v.node.Client())[0]
			if hidden := row.PromptPreview == ""; hidden != (word == "confidential") {
				t.Errorf("%s: the preview is %q", word, row.PromptPreview)
			}
		}
		v.up.on("ollama", broken)
		_, err := v.call(func(r *subjects.Request) { r.Messages[0].Content = subjects.Text("confidential") })
		if err == nil || v.up.count("groq") != 1 || v.up.count("openai") != 1 {
			t.Errorf("%v", err)
		}
		if s := v.route(subjects.RouteQuery{Sensitivity: "confidential"}).Summary; !strings.Contains(s, "-> ollama/llama3.2 [") || !strings.Contains(s, "groq skipped: confidential content may go to local providers only") {
			t.Error(s)
		}
	}, sluice.WithSensitivityClassifier(byWord{}))
}

// TestSharedOutlivesTheFirst: who shares an attempt has its own deadline, and the
// attempt is tried again for it when the first asker's has passed.
func TestSharedOutlivesTheFirst(t *testing.T) {
	t.Parallel()
	virtually(t, []string{"groq"}, nil, func(v *virtual) {
		v.up.on("groq", func(n int, r *http.Request) (*http.Response, error) {
			if n > 1 {
				return nil, nil // the usual answer
			}
			<-time.After(5 * time.Second)
			return broken(n, r)
		})
		shares := func(timeout int64) func(*subjects.Request) {
			return func(r *subjects.Request) { r.SkipCache, r.TimeoutMs = false, timeout }
		}
		first := make(chan *subjects.Error)
		go func() {
			_, err := v.call(shares(2000))
			first <- err
		}()
		v.pass(time.Second)
		res, err := v.call(shares(60_000))
		if err != nil || res.Provider != "groq" || v.up.count("groq") != 2 {
			t.Errorf("%+v, %v", res, err)
		}
		if err := <-first; err == nil || err.Kind != subjects.KindTimeout {
			t.Errorf("the first: %v", err)
		}
	})
}

// TestStandInIsNotKept: another provider's answer in place of the one that was
// asked for by name is given, and not kept.
func TestStandInIsNotKept(t *testing.T) {
	t.Parallel()
	virtually(t, []string{"groq", "openai"}, nil, func(v *virtual) {
		byName := func(r *subjects.Request) { r.Provider, r.SkipCache = "openai", false }
		v.up.on("openai", refused)
		v.served("groq", byName)
		v.up.on("openai", nil)
		v.served("openai", byName)
		if res, err := v.call(byName); err != nil || !res.Cached || res.Provider != "openai" || v.up.count("openai") != 2 || v.up.count("groq") != 1 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestOnlyKindsOfFallbackOnAdvance: a kind that is not among them ends the call, also
// when the breaker opens between two of its tries.
func TestOnlyKindsOfFallbackOnAdvance(t *testing.T) {
	t.Parallel()
	none := func(c *config.Config) { c.FallbackOn, c.Breaker.Threshold = nil, 2 }
	virtually(t, []string{"groq", "openai"}, none, func(v *virtual) {
		v.up.on("groq", broken)
		_, err := v.call()
		if err == nil || err.Kind != subjects.KindProvider || v.up.count("groq") != 2 || v.up.count("openai") != 0 {
			t.Errorf("%v", err)
		}
		v.served("openai") // the breaker leaves groq out before it is asked
	})
}

// TestProvidersOwnBudget: a provider that says its budget is used up, as another
// Sluice does, is followed by none that costs money.
func TestProvidersOwnBudget(t *testing.T) {
	t.Parallel()
	node := bare(t)
	broke := outsider(t, node, "broke", func(p *program, m *nats.Msg) {
		body := []byte(`{"error":{"kind":"BUDGET_EXCEEDED","message":"nothing is left"}}`)
		_ = p.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{subjects.HeaderErrorCode: {"402"}, subjects.HeaderError: {"no"}}, Data: body})
	})
	var metered atomic.Int64
	paid := outsider(t, node, "paid", func(p *program, m *nats.Msg) { metered.Add(1); reverse(p, m) })
	_, _ = broke.announce(`"models":["b"]`), paid.announce(reverseModels)
	until(t, node, "both", func(h *subjects.Health) bool { return h.Providers["broke"].Available && h.Providers["paid"].Available })
	req := ask("hello")
	req.Provider = "broke"
	if _, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req); subjects.KindOf(err) != subjects.KindBudgetExceeded || metered.Load() != 0 {
		t.Errorf("%v; the metered one was asked %d times", err, metered.Load())
	}
	local := outsider(t, node, "mine", reverse)
	_ = local.announce(reverseModels + `,"local":true`)
	until(t, node, "the local one", available("mine"))
	res, err := subjects.Call(t.Context(), node.Client(), subjects.ClassInteractive, req)
	if err != nil || res.Provider != "mine" || metered.Load() != 0 {
		t.Errorf("%+v, %v; the metered one was asked %d times", res, err, metered.Load())
	}
}

// TestNoFallbackOverBudget: without a fallback a used-up budget ends the calls that
// it would pay for, and no others.
func TestNoFallbackOverBudget(t *testing.T) {
	t.Parallel()
	edit := func(c *config.Config) { c.Costs.TotalUSD, c.Costs.Fallback = 400, false }
	virtually(t, []string{"copilot", "openai", "ollama"}, edit, func(v *virtual) {
		to := func(provider string) func(*subjects.Request) {
			return func(r *subjects.Request) { r.Provider = provider; r.MaxTokens = ptr(10) }
		}
		v.served("openai", to("openai")) // it costs the whole of the budget
		_, err := v.call(to("openai"))
		if err == nil || err.Kind != subjects.KindBudgetExceeded || err.Status() != 402 {
			t.Errorf("%v", err)
		}
		v.served("copilot")
		v.served("ollama", to("ollama"))
		v.up.on("copilot", noQuota)
		v.served("ollama") // and not openai
		_, err = v.call()  // now it would be openai
		if err == nil || err.Kind != subjects.KindBudgetExceeded || v.up.count("openai") != 1 {
			t.Errorf("%v", err)
		}
	})
}

// TestExplainedIsLive: what llm.query.route says is what a call does, for random
// jobs in a node with a quota, a breaker and a budget in the way.
func TestExplainedIsLive(t *testing.T) {
	t.Parallel()
	edit := func(c *config.Config) {
		c.Providers["groq"].Capabilities, c.Providers["ollama"].Capabilities = []string{"streaming"}, []string{"streaming"}
		c.Costs.PerRun[config.CostStandard] = 400
		c.TaskPriority = map[string][]string{"upside_down": {"anthropic", "openai", "groq", "copilot"}}
	}
	virtually(t, []string{"copilot", "claude-code", "groq", "anthropic", "openai", "ollama"}, edit, func(v *virtual) {
		v.up.on("copilot", noQuota)
		v.up.on("anthropic", badKey)
		v.served("groq")
		v.call(func(r *subjects.Request) { r.Provider = "anthropic" })
		v.served("openai", func(r *subjects.Request) { r.Provider, r.RunID, r.MaxTokens = "openai", "spent", ptr(10) })
		rng := rand.New(rand.NewPCG(1, 2))
		pick := func(s ...string) string { return s[rng.IntN(len(s))] }
		failed := 0
		for range 300 {
			q := subjects.RouteQuery{
				Task: pick("", "upside_down", "basic_classification"), Tier: pick("", "fast", "premium"), Provider: pick("", "", "openai", "copilot", "dmr"),
				Model: pick("", "", "auto", "groq/any", "gpt-5.4", "nobody-has-it"), Privacy: pick("", "", "local"), RunID: pick("", "spent"),
				Tools: rng.IntN(3) == 0, ForcePaid: rng.IntN(3) == 0, Class: subjects.ClassInteractive,
			}
			res, live := v.call(func(r *subjects.Request) {
				r.Task, r.Tier, r.Provider, r.Model, r.Privacy, r.RunID, r.ForcePaid = q.Task, q.Tier, q.Provider, q.Model, q.Privacy, q.RunID, q.ForcePaid
				if q.Tools {
					r.Tools = []subjects.Tool{{Name: "look"}}
				}
			})
			var route subjects.Route
			err := subjects.Query(v.ctx, v.node.Client(), subjects.QueryRoute, q, &route)
			switch {
			case err != nil:
				if live == nil || live.Kind != subjects.KindOf(err) {
					t.Fatalf("%s: explained %v, live %+v, %v", show(q), err, res, live)
				}
			case len(route.Chain) == 0:
				if failed++; live == nil {
					t.Fatalf("%s: explained %s, live %+v", show(q), route.Summary, res)
				}
			case live != nil || res.Provider != route.Chain[0].Provider || res.ModelRaw != route.Chain[0].Model || res.Tier != route.Tier:
				t.Fatalf("%s: explained %s, live %+v, %v", show(q), route.Summary, res, live)
			}
		}
		if failed == 0 {
			t.Error("no job was without a provider")
		}
	})
}

func ptr(n int64) *int64 { return &n }
