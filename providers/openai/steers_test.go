package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/providers"
	"github.com/sluice-llm/sluice/providers/internal/rest"
	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// strict refuses fields, as the servers do that were seen to: with a param, or
// with the name in the message alone. It notes the fields of every request.
type strict struct {
	refuse func(body map[string]json.RawMessage) (refusal string)

	mu   sync.Mutex
	seen []string
}

func (s *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	body := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &body); err != nil {
		panic(err)
	}
	fields := slices.Sorted(maps.Keys(body))
	fields = slices.DeleteFunc(fields, func(f string) bool { return f == "messages" || f == "model" || strings.HasPrefix(f, "stream") })
	s.mu.Lock()
	s.seen = append(s.seen, strings.Join(fields, ","))
	s.mu.Unlock()
	if refusal := s.refuse(body); refusal != "" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":%s}`, refusal)
		return
	}
	if body["stream"] != nil {
		io.WriteString(w, chunk(`{"content":"x"}`, `"stop"`)+doneLine)
		return
	}
	io.WriteString(w, answer)
}

func (s *strict) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.seen
	s.seen = nil
	return out
}

// The recorded forms of the refusals.
func openAIRefusal(field, code string) string {
	return fmt.Sprintf(`{"message":"Unsupported: '%s' is not supported with this model.","type":"invalid_request_error","param":%q,"code":%q}`, field, field, code)
}

func copilotRefusal(field string) string {
	return fmt.Sprintf(`{"message":"Unsupported parameter: '%s' is not supported with this model.","code":"invalid_request_body"}`, field)
}

func groqRefusal(field string) string {
	return fmt.Sprintf("{\"message\":\"`%s` is not supported with this model\",\"type\":\"invalid_request_error\"}", field)
}

const steered = `{"messages":[{"role":"user","content":"hi"}],"temperature":0.2,"topP":0.9,"seed":7,"reasoningEffort":"low","maxTokens":5}`

// refusedCase is a request and what its server refuses of it.
type refusedCase struct {
	wire     wire.Name
	body     string
	refused  map[string]string // field to refusal
	requests []string
	warnings []string
}

func TestRefusedSteersAreLeftOut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]refusedCase{
		"none refused": {wire.Native, steered, nil, []string{"max_tokens,reasoning_effort,seed,temperature,top_p"}, nil},
		"one, by its param": {
			wire.Native, steered,
			map[string]string{"temperature": openAIRefusal("temperature", "unsupported_value")},
			[]string{"max_tokens,reasoning_effort,seed,temperature,top_p", "max_tokens,reasoning_effort,seed,top_p"},
			[]string{"temperature is not supported by openai/gpt-4o and was left out"},
		},
		"two, by their names": {
			wire.Native, steered,
			map[string]string{"top_p": copilotRefusal("top_p"), "reasoning_effort": groqRefusal("reasoning_effort")},
			nil,
			[]string{"reasoningEffort is not supported by openai/gpt-4o and was left out", "topP is not supported by openai/gpt-4o and was left out"},
		},
		"on the caller's own wire": {
			wire.OpenAIChat, `{"messages":[{"role":"user","content":"hi"}],"top_p":0.9,"x":1}`,
			map[string]string{"top_p": openAIRefusal("top_p", "unsupported_parameter")},
			[]string{"top_p,x", "x"},
			[]string{"top_p is not supported by openai/gpt-4o and was left out"},
		},
		"the limit's other name": {
			wire.Native, `{"messages":[{"role":"user","content":"hi"}],"maxTokens":5}`,
			map[string]string{"max_tokens": `{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens","code":"unsupported_parameter"}`},
			[]string{"max_tokens", "max_completion_tokens"},
			nil,
		},
		"the limit's old name": {
			wire.OpenAIChat, `{"messages":[{"role":"user","content":"hi"}],"max_completion_tokens":5}`,
			map[string]string{"max_completion_tokens": `{"message":"Unrecognized request argument supplied: 'max_completion_tokens'"}`},
			[]string{"max_completion_tokens", "max_tokens"},
			nil,
		},
		"one of both limits": {
			wire.OpenAIChat, `{"messages":[{"role":"user","content":"hi"}],"max_completion_tokens":5,"max_tokens":5}`,
			map[string]string{"max_tokens": openAIRefusal("max_tokens", "unsupported_parameter")},
			[]string{"max_completion_tokens,max_tokens", "max_completion_tokens"},
			nil,
		},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(name, stream), func(t *testing.T) {
				t.Parallel()
				tc.run(t, stream)
			})
		}
	}
}

// run makes the call twice: the second knows what the first learned.
func (tc *refusedCase) run(t *testing.T, stream bool) {
	s := &strict{refuse: func(body map[string]json.RawMessage) string {
		for field, refusal := range tc.refused {
			if body[field] != nil {
				return refusal
			}
		}
		return ""
	}}
	p := fake(t, s.ServeHTTP)
	for round := range 2 {
		var resp *wire.Response
		var err error
		j := job(t, tc.wire, tc.body)
		if stream {
			resp, err = p.Stream(t.Context(), j, func(*wire.Event) error { return nil })
		} else {
			resp, err = p.Complete(t.Context(), j)
		}
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(resp.Warnings)
		if !slices.Equal(resp.Warnings, tc.warnings) {
			t.Errorf("warnings %q, want %q", resp.Warnings, tc.warnings)
		}
		got := s.requests()
		if round == 1 && len(got) != 1 {
			t.Errorf("the second call made %q", got)
		}
		if round == 0 && tc.requests != nil && !slices.Equal(got, tc.requests) {
			t.Errorf("requests %q, want %q", got, tc.requests)
		}
	}
}

// TestOtherRefusalsStand: what does not steer, or is not in the request, or is
// refused again, is the caller's error after one exchange, or one more.
func TestOtherRefusalsStand(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		refusal  string
		requests int
	}{
		"a field that decides":     {openAIRefusal("stop", "unsupported_value"), 1},
		"a message":                {`{"message":"Invalid value for 'content'","param":"messages[0].content"}`, 1},
		"a field that is not sent": {openAIRefusal("presence_penalty", "unsupported_value"), 1},
		"a limit that is too high": {`{"message":"max_tokens is too large: 5","param":"max_tokens","code":"invalid_value"}`, 1},
		"whatever is left out":     {openAIRefusal("temperature", "unsupported_value"), 2},
		"too long a prompt":        {`{"message":"This model's maximum context length is 10 tokens, see 'seed'","code":"context_length_exceeded","param":"seed"}`, 1},
		"another kind of error":    {`{"message":"bad 'seed'","code":"invalid_api_key","param":"seed"}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &strict{refuse: func(map[string]json.RawMessage) string { return tc.refusal }}
			p := fake(t, s.ServeHTTP)
			if _, err := p.Complete(t.Context(), job(t, wire.Native, steered)); err == nil {
				t.Error("no error")
			}
			if got := s.requests(); len(got) != tc.requests {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestRefusalsAreOfOneValue: a temperature that was refused does not keep another
// from the model, nor from another model.
func TestRefusalsAreOfOneValue(t *testing.T) {
	t.Parallel()
	s := &strict{refuse: func(body map[string]json.RawMessage) string {
		if v := string(body["temperature"]); v != "" && v != "1" {
			return openAIRefusal("temperature", "unsupported_value")
		}
		return ""
	}}
	p := fake(t, s.ServeHTTP)
	ask := func(model, temperature string, want ...string) {
		t.Helper()
		j := job(t, wire.Native, `{"messages":[{"role":"user","content":"hi"}],"temperature":`+temperature+`}`)
		j.Model = model
		if _, err := p.Complete(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if got := s.requests(); !slices.Equal(got, want) {
			t.Errorf("%s, %s: %q, want %q", model, temperature, got, want)
		}
	}
	ask("gpt-5.5", "0.2", "temperature", "")
	ask("gpt-5.5", "0.2", "")
	ask("gpt-5.5", "1", "temperature")
	ask("gpt-4o", "0.2", "temperature", "")
}

// TestRefusalsAreForgotten after an hour, and when there are too many.
func TestRefusalsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &steers{provider: "p"}
		r := refusal{"m", "temperature", "0.2"}
		s.add(r)
		time.Sleep(keptFor - time.Nanosecond)
		if !s.has(r) || s.has(refusal{"m", "temperature", "0.3"}) || s.has(refusal{"n", "temperature", "0.2"}) {
			t.Error("within the hour")
		}
		time.Sleep(time.Nanosecond)
		if s.has(r) {
			t.Error("after the hour")
		}
		s.add(refusal{"m", "top_p", ""})
		if !s.has(refusal{"m", "top_p", "0.9"}) {
			t.Error("the whole field")
		}
		for i := range 3 * maxKept {
			s.add(refusal{"m", "user", fmt.Sprint(i)})
			if len(s.refused) > maxKept {
				t.Fatalf("%d are kept", len(s.refused))
			}
		}
	})
}

// TestStreamOptionsRefused: our own wish is dropped in silence, the caller's is
// named.
func TestStreamOptionsRefused(t *testing.T) {
	t.Parallel()
	for body, warnings := range map[string]int{
		nativeHi: 0,
		`{"messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`: 1,
	} {
		s := &strict{refuse: func(body map[string]json.RawMessage) string {
			if body["stream_options"] != nil {
				return `{"message":"Extra inputs are not permitted: 'stream_options'"}`
			}
			return ""
		}}
		p := fake(t, s.ServeHTTP)
		name := wire.Native
		if warnings > 0 {
			name = wire.OpenAIChat
		}
		resp, err := p.Stream(t.Context(), job(t, name, body), func(*wire.Event) error { return nil })
		if err != nil || len(resp.Warnings) != warnings || len(s.requests()) != 2 {
			t.Errorf("%s: %+v, %v", body, resp, err)
		}
	}
}

// TestNoSecondTryOnceBegun: an error that names a field after the stream's first
// event is the call's.
func TestNoSecondTryOnceBegun(t *testing.T) {
	t.Parallel()
	requests := 0
	p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		requests++
		io.WriteString(w, chunk(`{"content":"x"}`, "null")+`data: {"error":`+openAIRefusal("temperature", "unsupported_value")+"}\n\n")
	})
	_, err := p.Stream(t.Context(), job(t, wire.Native, steered), func(*wire.Event) error { return nil })
	if subjects.KindOf(err) != subjects.KindValidation || requests != 1 {
		t.Errorf("%d requests, %v", requests, err)
	}
}

// TestManyLearnAtOnce runs calls side by side that all meet the refusal.
func TestManyLearnAtOnce(t *testing.T) {
	t.Parallel()
	s := &strict{refuse: func(body map[string]json.RawMessage) string {
		if body["temperature"] != nil {
			return openAIRefusal("temperature", "unsupported_value")
		}
		return ""
	}}
	p := fake(t, s.ServeHTTP)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			resp, err := p.Complete(t.Context(), job(t, wire.Native, steered))
			if err != nil || len(resp.Warnings) != 1 {
				t.Errorf("%+v, %v", resp, err)
			}
		})
	}
	wg.Wait()
}

// TestDialect: what an API has of its own is asked, and its word counts.
func TestDialect(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Own") != "1" {
			t.Errorf("%v", r.Header)
		}
		io.WriteString(w, `{"choices":[]}`)
	}))
	defer s.Close()
	cannot := subjects.Errorf(subjects.KindProviderUnavailable, "cannot")
	refuse := false
	p := NewDialect(&config.Provider{ID: "x", BaseURL: s.URL}, rest.Options{KeyOptional: true}, Dialect{
		Prepare: func(_ *providers.Job, ex *rest.Exchange) error {
			if refuse {
				return cannot
			}
			ex.Header = http.Header{"X-Own": {"1"}}
			return nil
		},
		Mend: func(_ *providers.Job, _ []byte) ([]byte, error) { return []byte(answer), nil },
	})
	defer p.Close()
	resp, err := p.Complete(t.Context(), job(t, wire.Native, nativeHi))
	if err != nil || string(resp.Raw) != answer || resp.OutputBytes != 5 {
		t.Errorf("%+v, %v", resp, err)
	}
	refuse = true
	if _, err = p.Complete(t.Context(), job(t, wire.Native, nativeHi)); err != cannot { //nolint:errorlint // returned as it is
		t.Errorf("%v", err)
	}
}
