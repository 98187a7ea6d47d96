package persistence

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/sluice-llm/sluice/subjects"
)

// decode reads what the database needs of a record: everything but the preview
// and an attempt trail in which no try spent anything. A record in the form that
// Sluice writes is read in one pass; any other is left to encoding/json, whose
// word is the rule.
func decode(data []byte) (*subjects.UsageRecord, error) {
	r := &subjects.UsageRecord{}
	if gjson.ValidBytes(data) && decodePlain(data, r) {
		return r, nil
	}
	*r = subjects.UsageRecord{}
	return r, json.Unmarshal(data, r)
}

func decodePlain(data []byte, r *subjects.UsageRecord) bool {
	root := gjson.ParseBytes(data)
	plain := root.IsObject()
	root.ForEach(func(key, v gjson.Result) bool {
		plain = field(r, key.Str, v)
		return plain
	})
	return plain
}

// field sets one field; false for one that is not as Sluice writes it.
func field(r *subjects.UsageRecord, key string, v gjson.Result) bool {
	switch key {
	case "id":
		return text(&r.ID, v)
	case "timestamp":
		return moment(&r.Timestamp.Time, v)
	case "provider":
		return text(&r.Provider, v)
	case "model":
		return text(&r.Model, v)
	case "model_raw":
		return text(&r.ModelRaw, v)
	case "process":
		return text(&r.Process, v)
	case "task":
		return text(&r.Task, v)
	case "class":
		return text(&r.Class, v)
	case "tier":
		return text(&r.Tier, v)
	case "subscription":
		return text(&r.Subscription, v)
	case "outcome":
		return text(&r.Outcome, v)
	case "cost_usd":
		return money(&r.CostUSD, v)
	case "saved_usd":
		return money(&r.SavedUSD, v)
	case "latency_ms":
		return decimal(&r.LatencyMs, v)
	case "queued_ms":
		return decimal(&r.QueuedMs, v)
	case "overhead_ms":
		return decimal(&r.OverheadMs, v)
	case "attempt_trail":
		return trail(&r.AttemptTrail, v)
	case "prompt_preview":
		return v.Type == gjson.String
	case "run_id":
		return text(&r.RunID, v)
	case "batch_id":
		return text(&r.BatchID, v)
	}
	return count(r, key, v)
}

func count(r *subjects.UsageRecord, key string, v gjson.Result) bool {
	switch key {
	case "input_tokens":
		return integer(&r.InputTokens, v)
	case "output_tokens":
		return integer(&r.OutputTokens, v)
	case "total_tokens":
		return integer(&r.TotalTokens, v)
	case "cache_read_tokens":
		return integer(&r.CacheReadTokens, v)
	case "cache_write_tokens":
		return integer(&r.CacheWriteTokens, v)
	case "reasoning_tokens":
		return integer(&r.ReasoningTokens, v)
	case "chain_position":
		var n int64
		ok := integer(&n, v)
		r.ChainPosition = int(n)
		return ok
	case "tokens_estimated":
		return boolean(&r.TokensEstimated, v)
	case "cached":
		return boolean(&r.Cached, v)
	case "partial":
		return boolean(&r.Partial, v)
	}
	return false
}

// unread stands for a trail in which no try spent anything.
var unread = []subjects.Attempt{}

// trail reads a trail only where a try spent something, which is rare. Of two
// trails in one record encoding/json makes something of its own.
func trail(to *[]subjects.Attempt, v gjson.Result) bool {
	switch {
	case *to != nil:
		return false
	case v.Type == gjson.Null:
		return true
	case !v.IsArray():
		return false
	case !maySpend(v.Raw):
		*to = unread
		return true
	}
	return json.Unmarshal([]byte(v.Raw), to) == nil
}

// maySpend is false only for JSON without a key that encoding/json takes for
// "spent": it looks past case, and "ſ" is an "s" to it.
func maySpend(raw string) bool {
	for i := range len(raw) - 3 {
		switch raw[i] {
		case '\\':
			return true
		case 'p', 'P':
			if strings.EqualFold(raw[i:i+4], "pent") {
				return true
			}
		}
	}
	return false
}

func text(to *string, v gjson.Result) bool {
	*to = v.Str
	return v.Type == gjson.String
}

func moment(to *time.Time, v gjson.Result) bool {
	t, err := time.Parse(subjects.TimeFormat, v.Str)
	*to = t
	return v.Type == gjson.String && err == nil
}

func integer(to *int64, v gjson.Result) bool {
	n, err := strconv.ParseInt(v.Raw, 10, 64)
	*to = n
	return err == nil
}

func decimal(to *float64, v gjson.Result) bool {
	*to = v.Num
	return v.Type == gjson.Number && !math.IsInf(v.Num, 0)
}

func boolean(to *bool, v gjson.Result) bool {
	*to = v.Type == gjson.True
	return v.IsBool()
}

func money(to **subjects.USD, v gjson.Result) bool {
	if v.Type == gjson.Null {
		return true
	}
	*to = new(subjects.USD)
	return v.Type == gjson.Number && (*to).UnmarshalJSON([]byte(v.Raw)) == nil
}
