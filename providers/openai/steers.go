package openai

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// steering are the fields that steer an answer and do not decide what it is, by
// their names here and on the native wire. A server that refuses one gets the
// request without it.
var steering = map[string]string{
	"temperature": "temperature", "top_p": "topP", "seed": "seed", "reasoning_effort": "reasoningEffort",
	"parallel_tool_calls": "parallelToolCalls", "frequency_penalty": "frequencyPenalty", "presence_penalty": "presencePenalty",
	"user": "user", "metadata": "metadata", "logit_bias": "logit_bias", "verbosity": "verbosity", "service_tier": "service_tier",
	"store": "store", "prompt_cache_key": "prompt_cache_key", "safety_identifier": "safety_identifier",
	"stream_options": "stream_options",
}

// limits are the two names of the bound on the answer: a server that refuses the
// one may know the other.
var limits = map[string]string{"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}

const (
	// keptFor is how long a refusal is kept: servers and models change.
	keptFor = time.Hour
	// maxKept bounds the refusals that are kept; above it all are forgotten.
	maxKept = 512
	// maxValue bounds the value that a refusal is tied to, in bytes; a longer one
	// stands for all values of its field.
	maxValue = 32
	// maxTries bounds the refusals that one attempt answers.
	maxTries = 6
)

// steers is what an API's models have refused of what only steers: OpenAI's
// reasoning models take no temperature, Groq's others no reasoning effort, and
// which model takes what is written nowhere that a program could read. So the
// server is asked: it refuses with 400 and names the field, nothing is billed, and
// the request goes out again without it. The refusal is kept for an hour, for this
// model, field and value, so that it costs one exchange and not one a call. Safe
// for concurrent use.
type steers struct {
	provider    string
	streamUsage bool

	some    atomic.Bool // there are refusals
	mu      sync.Mutex
	refused map[refusal]time.Time // till when
}

// refusal is of one value of a field; value is "" where all are meant.
type refusal struct{ model, field, value string }

func (s *steers) add(r refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil || len(s.refused) >= maxKept {
		s.refused = map[refusal]time.Time{}
	}
	s.refused[r] = time.Now().Add(keptFor)
	s.some.Store(true)
}

// has reports whether the value was refused, or the whole field.
func (s *steers) has(r refusal) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.refused[r]
	r.value = ""
	return now.Before(one) || now.Before(s.refused[r])
}

// leaveOut takes out of a request what its model is known to refuse.
func (s *steers) leaveOut(job *providers.Job, ex *rest.Exchange) {
	if !s.some.Load() {
		return
	}
	both := hasBoth(ex.Body)
	ex.Body = wire.EditMembers(ex.Body, func(name, value string) string {
		native, steer := steering[name]
		other, limit := limits[name]
		switch r := (refusal{job.Model, name, bounded(value)}); {
		case !steer && !limit || !s.has(r):
			return name
		case limit && both:
			return ""
		case limit:
			return other
		}
		if name == "stream_options" && !job.Request.Head.StreamUsage {
			return "" // it was not the caller's
		}
		if job.Request.Wire == wire.Native {
			name = native
		}
		ex.Warnings = append(ex.Warnings, name+" is not supported by "+s.provider+"/"+job.Model+" and was left out")
		return ""
	})
}

// hasBoth reports whether a body has the limit under both of its names.
func hasBoth(body []byte) bool {
	n := 0
	wire.EditMembers(body, func(name, _ string) string {
		if limits[name] != "" {
			n++
		}
		return name
	})
	return n > 1
}

func bounded(value string) string {
	if len(value) > maxValue {
		return ""
	}
	return value
}

// tries are those of one attempt.
type tries struct {
	steers *steers
	job    *providers.Job
	stream bool
	fields []string // that were left out
}

// again reports whether the request is worth sending again after err: it names a
// field that only steers, that the request has, and that is not left out yet.
func (t *tries) again(err error) bool {
	var e *subjects.Error
	if !errors.As(err, &e) || e.Kind != subjects.KindValidation || e.Code == subjects.CodeContextLength || len(t.fields) == maxTries {
		return false
	}
	field := named(e.Param, e.Message)
	if field == "" || slices.Contains(t.fields, field) {
		return false
	}
	value, ok := t.value(field)
	if !ok {
		return false
	}
	if e.Code == "unsupported_parameter" || limits[field] != "" {
		value = ""
	}
	t.fields = append(t.fields, field)
	t.steers.add(refusal{t.job.Model, field, value})
	return true
}

// value is that of a field in the request as it would be written with nothing
// left out; false = it is not there.
func (t *tries) value(field string) (value string, ok bool) {
	body, err := t.job.Request.OpenAIChat(t.job.Model, t.stream, t.steers.streamUsage)
	if err != nil {
		return "", false
	}
	wire.EditMembers(body, func(name, v string) string {
		if name == field || limits[field] != "" && name == limits[field] {
			value, ok = strings.Clone(bounded(v)), true
		}
		return name
	})
	return value, ok
}

// named is the field that an error is about: its param, or the name that stands
// in its message, in quotes or in front. Of several that steer, the last one is
// meant ("temperature and top_p cannot both be set"); of the two names of the
// limit, the first ("max_tokens is not supported, use max_completion_tokens").
func named(param, message string) string {
	if _, ok := steering[param]; ok {
		return param
	}
	found, at := "", -1
	for field := range steering {
		if i := quoted(message, field); i > at {
			found, at = field, i
		}
	}
	text := strings.ToLower(message)
	if found != "" || !strings.Contains(text, "not supported") && !strings.Contains(text, "unsupported") && !strings.Contains(text, "unrecognized") {
		return found
	}
	if limits[param] != "" {
		return param
	}
	for field := range limits {
		if i := quoted(message, field); i >= 0 && (at < 0 || i < at) {
			found, at = field, i
		}
	}
	return found
}

// quoted is where a name stands in quotes in a text, or at its beginning; -1 =
// nowhere.
func quoted(text, name string) int {
	if strings.HasPrefix(text, name+" ") {
		return 0
	}
	for _, q := range []string{"'", "`", `"`} {
		if i := strings.Index(text, q+name+q); i >= 0 {
			return i
		}
	}
	return -1
}
