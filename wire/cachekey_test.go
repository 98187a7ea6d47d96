package wire

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

type key [sha256.Size]byte

func keyOf(r *Request) key {
	h := sha256.New()
	r.WriteCacheKey(h)
	return key(h.Sum(nil))
}

// member is a top-level member with two values of different meaning; the first
// is the full request's. matters says that the answer may be another.
type member struct {
	name, value, other string
	matters            bool
}

var nativeMembers = []member{
	{"messages", `[{"role":"user","content":"hi"}]`, `[{"role":"user","content":"ho"}]`, true},
	{"tools", `[{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}]`, `[{"name":"f","description":"e"}]`, true},
	{"toolChoice", `"auto"`, `{"name":"f"}`, true},
	{"temperature", `0.5`, `0.50`, true}, // the same number in other digits may miss
	{"topP", `1`, `0.9`, true},
	{"maxTokens", `100`, `101`, true},
	{"stop", `["a","b"]`, `["ab"]`, true},
	{"responseFormat", `{"type":"text"}`, `{"type":"json_object"}`, true},
	{"seed", `9007199254740993`, `9007199254740992`, true}, // one float64
	{"reasoningEffort", `"low"`, `"high"`, true},
	{"parallelToolCalls", `true`, `false`, true},
	{"stream", `true`, `false`, true},
	{"tier", `"fast"`, `"premium"`, false},
	{"task", `"a"`, `"b"`, false},
	{"process", `"a"`, `"b"`, false},
	{"provider", `"openai"`, `"groq"`, false},
	{"model", `"a"`, `"b"`, false},
	{"agentId", `"a"`, `"b"`, false},
	{"privacy", `"any"`, `"local"`, false},
	{"skipCache", `true`, `false`, false},
	{"forcePaid", `true`, `false`, false},
	{"timeoutMs", `1000`, `2000`, false},
	{"callId", `"a"`, `"b"`, false},
	{"runId", `"a"`, `"b"`, false},
	{"batchId", `"a"`, `"b"`, false},
	{"cacheScope", `"a"`, `"b"`, false},
	{"taskType", `"a"`, `"b"`, false},
	{"operationType", `"a"`, `"b"`, false},
	{"timeout", `1000`, `2000`, false},
	{"agent", `"a"`, `"b"`, false},
	{"subscription", `"api-key"`, `"local"`, false},
}

var openAIMembers = []member{
	{"model", `"a"`, `"b"`, false},
	{"messages", `[{"role":"user","content":"hi"}]`, `[{"role":"user","content":"ho"}]`, true},
	{"stream", `true`, `false`, true},
	{"stream_options", `{"include_usage":true}`, `{"include_usage":false}`, true},
	{"max_tokens", `100`, `101`, true},
	{"max_completion_tokens", `100`, `101`, true},
	{"temperature", `0.5`, `0.6`, true},
	{"top_p", `1`, `0.9`, true},
	{"stop", `"a"`, `["a"]`, true},
	{"n", `1`, `2`, true},
	{"tools", `[{"type":"function","function":{"name":"f"}}]`, `[{"type":"function","function":{"name":"g"}}]`, true},
	{"tool_choice", `"auto"`, `"none"`, true},
	{"functions", `[{"name":"f"}]`, `[{"name":"g"}]`, true},
	{"function_call", `"auto"`, `"none"`, true},
	{"response_format", `{"type":"text"}`, `{"type":"json_object"}`, true},
	{"logprobs", `true`, `false`, true},
	{"top_logprobs", `1`, `2`, true},
	{"modalities", `["text"]`, `["text","audio"]`, true},
	{"audio", `{"voice":"a"}`, `{"voice":"b"}`, true},
	{"presence_penalty", `1`, `2`, true},
	{"frequency_penalty", `1`, `2`, true},
	{"seed", `1`, `2`, true},
	{"web_search_options", `{}`, `{"a":1}`, true},
	{"user", `"a"`, `"b"`, true}, // unknown here: the provider's own
	{"metadata", `{"a":"1"}`, `{"a":"2"}`, true},
}

// bodyOf writes the members, that of index change with its other value, without
// that of index leave.
func bodyOf(members []member, change, leave int) string {
	var parts []string
	for i, m := range members {
		value := m.value
		if i == change {
			value = m.other
		}
		if i != leave {
			parts = append(parts, fmt.Sprintf("%q:%s", m.name, value))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestCacheKeyMembers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		wire    Name
		members []member
		known   []string
	}{{Native, nativeMembers, nativeKnown}, {OpenAIChat, openAIMembers, openAIKnown}} {
		for _, name := range tc.known {
			if !slices.ContainsFunc(tc.members, func(m member) bool { return m.name == name }) {
				t.Errorf("%s: nothing says whether %s matters to the cache", tc.wire, name)
			}
		}
		full := keyOf(parsed(t, tc.wire, bodyOf(tc.members, -1, -1)))
		for i, m := range tc.members {
			if got := keyOf(parsed(t, tc.wire, bodyOf(tc.members, i, -1))) != full; got != m.matters {
				t.Errorf("%s: another %s makes another key: %v", tc.wire, m.name, got)
			}
			if m.name == "messages" || m.name == "tools" { // it cannot be left out
				continue
			}
			if got := keyOf(parsed(t, tc.wire, bodyOf(tc.members, -1, i))) != full; got != m.matters {
				t.Errorf("%s: no %s makes another key: %v", tc.wire, m.name, got)
			}
		}
	}
}

// TestCacheKeyDeep changes each value within the prompt, one at a time.
func TestCacheKeyDeep(t *testing.T) {
	t.Parallel()
	body := `{"messages":[{"role":"system","content":"s","name":"n"},
		{"role":"user","content":[{"type":"text","text":"t"},{"type":"image","imageUrl":"data:image/png;base64,AA==","detail":"low"}]},
		{"role":"assistant","content":null,"toolCalls":[{"id":"1","name":"f","arguments":"{\"a\":1}"}]},
		{"role":"tool","toolCallId":"1","content":"r"}],
		"tools":[{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"enum":[1,2.5,true,null]}}},"strict":false}],
		"responseFormat":{"type":"json_schema","name":"n","schema":{"x":[]},"strict":true},"stop":["a"]}`
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	seen := map[key]string{}
	note := func(where string) {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []Name{Native, OpenAIChat} {
			k := keyOf(&Request{Wire: w, Body: b})
			if was, ok := seen[k]; ok {
				t.Errorf("%s: %s has the key of %s", w, where, was)
			}
			seen[k] = string(w) + " " + where
		}
	}
	note("the original")
	changeEach(v, "", func(any) {}, note)
}

// changeEach changes every scalar below v, and v itself by set, one at a time.
func changeEach(v any, at string, set func(any), note func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for name, old := range v {
			changeEach(old, at+"."+name, func(x any) { v[name] = x }, note)
			delete(v, name)
			note(at + " without " + name)
			v[name] = old
		}
	case []any:
		for i, old := range v {
			changeEach(old, fmt.Sprintf("%s[%d]", at, i), func(x any) { v[i] = x }, note)
		}
		set(append(slices.Clone(v), "new"))
		note(at + " with one more")
		set(v)
	default:
		set(fmt.Sprint(v, "!"))
		note(at)
		set(v)
	}
}

// TestCacheKeyForm: what looks alike when it is put together is told apart.
func TestCacheKeyForm(t *testing.T) {
	t.Parallel()
	seen := map[key]string{}
	for _, body := range []string{
		`{}`, `{"":""}`, `{"a":1}`, `{"a":"1"}`, `{"a":1,"b":2}`, `{"a":"1,\"b\":2"}`, `{"b":2,"a":1}`, `{"a":1,"a":1}`, `{"a":null}`,
		`{"aa":1}`, `{"a":{"model":"x"}}`, `{"a":{"model":"y"}}`, `{"Model":"x"}`,
	} {
		for _, w := range []Name{Native, OpenAIChat, AnthropicMessages} {
			for _, stream := range []bool{false, true} {
				k := keyOf(&Request{Wire: w, Body: []byte(body), Head: Head{Stream: stream}})
				form := fmt.Sprint(w, stream, body)
				if was, ok := seen[k]; ok {
					t.Errorf("%s has the key of %s", form, was)
				}
				seen[k] = form
			}
		}
	}
	same := func(a, b string) {
		t.Helper()
		if keyOf(&Request{Wire: OpenAIChat, Body: []byte(a)}) != keyOf(&Request{Wire: OpenAIChat, Body: []byte(b)}) {
			t.Errorf("%s and %s have not the same key", a, b)
		}
	}
	same(`{"a":1}`, " \r\n\t{ \"a\":1 } \n")
	same(`{"a":1,"b":2}`, `{"mod\u0065l":"m","a":1,"stream":false , "b":2}`)
}

// FuzzWriteCacheKey: equal bodies have equal keys, other routing changes nothing,
// and two bodies of one key say the same.
func FuzzWriteCacheKey(f *testing.F) {
	full := bodyOf(nativeMembers, -1, -1)
	for _, s := range []string{full, bodyOf(openAIMembers, -1, -1), `{` + hi + `}`, ` {} `, `{"a":`, `{"messages":[{"role":"user","content":"\ud83d\ude00"}]}`} {
		f.Add(s, full, true)
		f.Add(s, s, false)
	}
	f.Fuzz(func(t *testing.T, a, b string, native bool) {
		name := OpenAIChat
		if native {
			name = Native
		}
		keyOf(&Request{Wire: name, Body: []byte(a)}) // whatever it is
		ra, err := Parse(name, []byte(a))
		if err != nil {
			return
		}
		k := keyOf(ra)
		if again := parsed(t, name, a); keyOf(again) != k {
			t.Error("the same body has two keys")
		}
		if ra.Head.Model == "" && !strings.Contains(a, "del") { // model, in no spelling
			at := strings.IndexByte(a, '{') + 1
			routed := parsed(t, name, a[:at]+`"model":"some/model",`+a[at:])
			if keyOf(routed) != k {
				t.Error("the model changes the key")
			}
		}
		if rb, err := Parse(name, []byte(b)); err == nil && keyOf(rb) == k && said(t, ra) != said(t, rb) {
			t.Errorf("%s and %s have one key", a, b)
		}
	})
}

// said is the prompt of a request as encoding/json reads it.
func said(t *testing.T, r *Request) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.Body, &members); err != nil {
		t.Fatal(err)
	}
	for _, m := range slices.Concat(nativeMembers, openAIMembers) {
		if !m.matters && (r.Wire == Native || m.name == "model") || m.name == "stream" {
			delete(members, m.name)
		}
	}
	b, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(r.Wire, r.Head.Stream, string(b))
}

func benchCacheKey(b *testing.B, name Name, body []byte) {
	r := parsed(b, name, string(body))
	h := sha256.New()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	cpu(b)
	for b.Loop() {
		h.Reset()
		r.WriteCacheKey(h)
	}
}

func BenchmarkCacheKeyNative1K(b *testing.B) { benchCacheKey(b, Native, nativeBody(1024)) }
func BenchmarkCacheKeyOpenAI1K(b *testing.B) { benchCacheKey(b, OpenAIChat, openAIBody(1024)) }
func BenchmarkCacheKeyOpenAI1M(b *testing.B) { benchCacheKey(b, OpenAIChat, openAIBody(1<<20)) }
