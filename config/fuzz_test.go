package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/subjects"
)

// FuzzLoad loads any text: it ends in a whole Config or in an *Error of
// bounded length that shows no secret.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/faults/*.txt")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		parts := strings.Split(string(data), rule)
		f.Add(parts[0], "LLM_INGESTION_SLOTS=4")
	}
	f.Add(BuiltIn(), "OLLAMA_HOST=h:1")
	f.Add("mode: ${A}", "A=mock")
	f.Add("", "LLM_BASE_URL_CUS\x01M=http://h")
	f.Add("", "LLM_BASE_URL_CUS\xe5M=http://h")
	f.Add("a: &a [*a]\nb: |\n  x\n", "LLM_BASE_URL_CUSTOM=http://h")
	f.Fuzz(func(t *testing.T, file, variable string) {
		c, err := Load(text(file, variable, "OPENAI_API_KEY=hunter2hunter2"))
		if err == nil {
			checkWhole(t, c)
			if err := schemaFault(t, file); err != nil {
				t.Fatalf("the schema refuses what Load takes: %v", err)
			}
			return
		}
		var e *Error
		if c != nil || !errors.As(err, &e) || len(e.Faults) == 0 || len(e.Faults) > maxFaults+1 {
			t.Fatalf("Load = %v, %v", c, err)
		}
		for _, fault := range e.Faults {
			line := fault.String()
			if len(line) > 4096 || !utf8.ValidString(line) || strings.ContainsAny(line, "\n\r\x00") {
				t.Fatalf("a fault that is not one short line: %q", line)
			}
			if strings.Contains(line, "hunter2hunter2") && !strings.Contains(file+variable, "hunter2") {
				t.Fatalf("a fault shows the key: %q", line)
			}
		}
	})
}

// checkWhole holds what every Config promises.
func checkWhole(t *testing.T, c *Config) {
	t.Helper()
	if len(c.Providers) != len(c.Order) || c.Mode == "" || c.DefaultTier == "" || !slices.Contains(costModes, c.CostMode) {
		t.Fatalf("not whole: %+v", c)
	}
	for key, n := range c.Pools.Caps {
		if n < 1 || n > maxCount {
			t.Fatalf("cap of %s: %d", key, n)
		}
	}
	for class, s := range c.Pools.Classes {
		if s.Slots < 1 || s.Slots > maxCount || s.Weight < 1 {
			t.Fatalf("class %s: %+v", class, s)
		}
	}
	for id, p := range c.Providers {
		if p.ID != id || (p.Mock != nil) != (p.Kind == KindMock) {
			t.Fatalf("provider %s: %+v", id, p)
		}
	}
	checkLimits(t, c)
	p, r := c.Pools, c.Retry
	if p.DefaultCap < 1 || p.MaxQueue < 1 || p.MaxCalls < 1 || p.MaxBytes < 1 || p.SaturatedAfter <= 0 {
		t.Fatalf("pools: %+v", p)
	}
	if r.MaxAttempts < 1 || r.MaxDelay < r.BaseDelay || r.Jitter < 0 || r.Jitter > 1 || r.CallTimeout <= 0 {
		t.Fatalf("retry: %+v", r)
	}
}

func checkLimits(t *testing.T, c *Config) {
	t.Helper()
	if b := c.Breaker; b.Threshold < 1 || b.ResetTimeout <= 0 || b.MaxPause < b.ResetTimeout {
		t.Fatalf("breaker: %+v", b)
	}
	if k := c.Cache; k.MaxEntries < 0 || k.TTL <= 0 || k.MaxBytes < 0 || k.MaxEntryBytes < 1 {
		t.Fatalf("cache: %+v", k)
	}
	if s := c.Costs; s.BatchTokens < NoLimit || s.BatchUSD < NoLimit || s.TotalUSD < NoLimit || c.RunLimit() < NoLimit || !slices.Contains(periods, s.TotalPeriod) {
		t.Fatalf("costs: %+v", s)
	}
	for class, part := range c.Quota.Reserve {
		if part < 0 || part > 1 || !slices.Contains(subjects.Classes, class) {
			t.Fatalf("reserve of %s: %g", class, part)
		}
	}
	for name, h := range c.Hooks {
		if !slices.Contains(hookNames, name) || !hookName.MatchString(h.Subject) || h.Timeout <= 0 || h.OnError == "" {
			t.Fatalf("hook %s: %+v", name, h)
		}
	}
}
