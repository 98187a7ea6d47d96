package wire

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/subjects"
)

func TestReadGemini(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, raw string
		want      Response
	}{
		{
			"plain",
			`{"candidates":[{"content":{"parts":[{"text":"h\u00e9\n","thoughtSignature":"EjQK"}],"role":"model"},"finishReason":"STOP","index":0,"avgLogprobs":-0.1}],
			 "usageMetadata":{"promptTokenCount":100,"cachedContentTokenCount":60,"candidatesTokenCount":20,"thoughtsTokenCount":5,"toolUsePromptTokenCount":3,"totalTokenCount":128,"promptTokensDetails":[{"modality":"TEXT","tokenCount":100}]},
			 "modelVersion":"gemini-2.5-flash","responseId":"x"}`,
			Response{Text: "hé\n", FinishReason: "stop", Model: "gemini-2.5-flash", OutputBytes: 4, UsageKnown: true, Usage: subjects.Usage{
				InputTokens: 43, OutputTokens: 25, TotalTokens: 68, CacheReadTokens: 60, ReasoningTokens: 5,
			}},
		},
		{
			"thoughts are counted and not shown",
			`{"candidates":[{"content":{"parts":[{"thought":true,"text":"hmm"},{"text":"a","thought":false},{"text":"b"},{"text":""},{"text":"c"}]},"finishReason":"MAX_TOKENS"}]}`,
			Response{Text: "abc", FinishReason: "length", OutputBytes: 6},
		},
		{
			"function calls",
			`{"candidates":[{"content":{"parts":[{"text":"I look"},{"functionCall":{"name":"f","args":{ "a" : "x y",
			  "b":[1, 2]},"id":"i1"},"thoughtSignature":"x"},{"functionCall":{"name":"g","id":"i2"}}]},"finishReason":"STOP"}]}`,
			Response{Text: "I look", FinishReason: "tool_calls", OutputBytes: 31, ToolCalls: []subjects.ToolCall{
				{ID: "i1", Name: "f", Arguments: `{"a":"x y","b":[1,2]}`}, {ID: "i2", Name: "g", Arguments: "{}"},
			}},
		},
		{
			"a filter after some text",
			`{"candidates":[{"content":{"parts":[{"text":"so far"}]},"finishReason":"RECITATION","safetyRatings":[]}],"usageMetadata":{"promptTokenCount":4}}`,
			Response{Text: "so far", FinishReason: "content_filter", OutputBytes: 6, UsageKnown: true, Usage: subjects.Usage{InputTokens: 4, TotalTokens: 4}},
		},
		{"a filter before any", `{"candidates":[{"finishReason":"SAFETY","index":0}]}`, Response{FinishReason: "content_filter"}},
		{"nothing to say", `{"candidates":[{"content":{"role":"model"},"finishReason":"STOP"}],"usageMetadata":{}}`, Response{FinishReason: "stop"}},
		{"the limit of one request", `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"CONTINUATION","continuationToken":"xx"}]}`, Response{Text: "a", FinishReason: "length", OutputBytes: 1}},
		{"the first of several", `{"candidates":[{"index":1,"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"},{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`, Response{Text: "a", FinishReason: "stop", OutputBytes: 1}},
		{"no finish reason", `{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}`, Response{Text: "a", OutputBytes: 1}},
		{
			"feedback without a block", `{"promptFeedback":{"safetyRatings":[]},"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`,
			Response{Text: "a", FinishReason: "stop", OutputBytes: 1},
		},
		{
			"parts of other kinds", `{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"AA=="}},{"inlineData":{}},{"executableCode":{}},{"text":"a"}]},"finishReason":"STOP"}]}`,
			Response{Text: "a", FinishReason: "stop", OutputBytes: 1, Warnings: []string{
				"a part of the answer (inlineData) is not supported by sluice and was left out",
				"a part of the answer (executableCode) is not supported by sluice and was left out",
			}},
		},
		{
			"a list of chunks, as without alt=sse", `[{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":1}},{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":2}}]`,
			Response{Text: "ab", FinishReason: "stop", OutputBytes: 2, UsageKnown: true, Usage: subjects.Usage{InputTokens: 1, OutputTokens: 2, TotalTokens: 3}},
		},
		{
			"absurd usage", `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":5,"cachedContentTokenCount":9,"candidatesTokenCount":-3,"thoughtsTokenCount":1e300,"toolUsePromptTokenCount":"x"}}`,
			Response{Text: "a", FinishReason: "stop", OutputBytes: 1, UsageKnown: true, Usage: subjects.Usage{CacheReadTokens: 5, OutputTokens: maxTokens, ReasoningTokens: maxTokens, TotalTokens: maxTokens}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := ReadGemini([]byte(tc.raw))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(*got, tc.want) {
				t.Errorf("\n got %+v\nwant %+v", *got, tc.want)
			}
			if streamed, err := streamGemini([]byte(tc.raw)); err != nil || streamed.Text != tc.want.Text || streamed.FinishReason != tc.want.FinishReason || streamed.Usage != tc.want.Usage || len(streamed.ToolCalls) != len(tc.want.ToolCalls) {
				t.Errorf("as a stream: %v %+v", err, streamed)
			}
		})
	}
}

// streamGemini reads chunks as a stream and gathers what they yield.
func streamGemini(chunks ...[]byte) (*Response, error) {
	var s GeminiStream
	var text strings.Builder
	var calls []subjects.ToolCall
	yield := func(ev *Event) error {
		text.WriteString(ev.Text)
		if ev.ToolCall != nil {
			calls = append(calls, *ev.ToolCall)
		}
		return nil
	}
	var err error
	for _, c := range chunks {
		own := slices.Clone(c)
		failure := false
		if failure, err = s.Chunk(own, yield); failure {
			err = errGeminiFailure
		}
		clear(own) // what was given out must not need it any more
		if err != nil {
			break
		}
	}
	resp := s.Sum()
	resp.Text, resp.ToolCalls = text.String(), calls
	return resp, err
}

func TestReadGeminiFailures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		raw, code, message string
		kind               subjects.Kind
	}{
		{`{}`, "", "the answer has no candidates", subjects.KindProvider},
		{`{"candidates":[]}`, "", "the answer has no candidates", subjects.KindProvider},
		{`{"candidates":null,"promptFeedback":null}`, "", "the answer has no candidates", subjects.KindProvider},
		{`{"candidates":[{"index":1,"finishReason":"STOP"}]}`, "", "the answer has no candidates", subjects.KindProvider},
		{`{"candidates":[{"content":{"role":"model"},"index":0}]}`, "", "the answer ended early, without a finish reason", subjects.KindProvider},
		{`[]`, "", "the answer has no candidates", subjects.KindProvider},
		{`[{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}]`, "", "the answer ended early, without a finish reason", subjects.KindProvider},
		{`[{"candidates":[{"content":{"parts":[{"text":"a"}]}}]},{"error":{"code":503}}]`, "", "the answer breaks off with an error", subjects.KindProvider},
		{`{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":7}}`, "PROHIBITED_CONTENT", "the prompt was blocked (PROHIBITED_CONTENT); change it, or ask another provider", subjects.KindContentPolicy},
		{`{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"Malformed function call: print(secret)"}],"usageMetadata":{"promptTokenCount":7}}`, "", "the model ended without an answer (MALFORMED_FUNCTION_CALL)", subjects.KindProvider},
		{`{"candidates":[{"finishReason":"OTHER"}]}`, "", "(OTHER)", subjects.KindProvider},
		{`{"candidates":[{"finishReason":"A_NEW\u0007_ONE"}]}`, "", "(A_NEW?_ONE)", subjects.KindProvider},
	} {
		resp, err := ReadGemini([]byte(tc.raw))
		e := subjects.AsError(err)
		if err == nil || e.Kind != tc.kind || e.Code != tc.code || !strings.Contains(e.Message, tc.message) {
			t.Errorf("%s: %v", tc.raw, err)
		}
		if resp == nil || strings.Contains(tc.raw, "promptTokenCount") && (!resp.UsageKnown || resp.Usage.InputTokens != 7) {
			t.Errorf("%s: the usage is lost: %+v", tc.raw, resp)
		}
	}
}

// Calls that the API gave no id, or one twice, get their own.
func TestReadGeminiMakesIDs(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}},{"functionCall":{"name":"f","args":null}},{"functionCall":{"name":"f","id":"x","args":{}}},{"functionCall":{"name":"f","id":"x"}}]},"finishReason":"STOP"}]}`)
	seen := map[string]bool{}
	for range 2 {
		resp, err := ReadGemini(raw)
		if err != nil || len(resp.ToolCalls) != 4 {
			t.Fatal(err, resp)
		}
		for i, c := range resp.ToolCalls {
			if c.ID == "" || c.Arguments != "{}" || c.ID != "x" && seen[c.ID] || (i == 2) != (c.ID == "x") {
				t.Errorf("%d: %+v", i, c)
			}
			seen[c.ID] = true
		}
	}
}

func TestGeminiStream(t *testing.T) {
	t.Parallel()
	got, err := streamGemini(
		[]byte(`{"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4},"modelVersion":"gemini-3.8-flash","candidates":[]}`),
		[]byte(`{"candidates":[{"content":{"parts":[{"text":"hmm","thought":true}]}}],"usageMetadata":{"promptTokenCount":10,"thoughtsTokenCount":3}}`),
		[]byte("\n {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\\u0062\"}]}}],\"usageMetadata\":{\"candidatesTokenCount\":2}} "),
		[]byte(`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"x":1},"id":"1"}}]}}],"modelVersion":"later"}`),
		[]byte(`{"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP"}]}`),
		[]byte(`{"candidates":[],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":7}}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := Response{
		Text: "ab", ToolCalls: []subjects.ToolCall{{ID: "1", Name: "f", Arguments: `{"x":1}`}}, FinishReason: "tool_calls", Model: "gemini-3.8-flash",
		Usage:      subjects.Usage{InputTokens: 6, CacheReadTokens: 4, OutputTokens: 10, ReasoningTokens: 3, TotalTokens: 16},
		UsageKnown: true, OutputBytes: 13,
	}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("\n got %+v\nwant %+v", *got, want)
	}
}

func TestGeminiStreamEnds(t *testing.T) {
	t.Parallel()
	text := []byte(`{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1}}`)
	var s GeminiStream
	yield := func(*Event) error { return nil }
	if _, err := s.Chunk(text, yield); err != nil || s.Whole() {
		t.Error(err, "whole without a finish reason")
	}
	for _, bad := range []string{``, `{`, `nonsense`, `"a"`, `{"a":1}}`, `[DONE]`} {
		if _, err := s.Chunk([]byte(bad), yield); subjects.KindOf(err) != subjects.KindProvider {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, failure := range []string{`{"error":{"code":503,"status":"UNAVAILABLE"}}`, `[{"error":{"code":429}}]`, `{"error":"x"}`} {
		if is, err := s.Chunk([]byte(failure), yield); !is || err != nil {
			t.Errorf("%s: %v %v", failure, is, err)
		}
	}
	if is, err := s.Chunk([]byte(`{"error":null,"candidates":[{"finishReason":"STOP"}]}`), yield); is || err != nil || !s.Whole() {
		t.Error(is, err, s.Whole())
	}
	if sum := s.Sum(); sum.FinishReason != "stop" || sum.Usage.OutputTokens != 1 {
		t.Errorf("%+v", sum)
	}
	resp, err := streamGemini([]byte(`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":9}}`))
	if subjects.KindOf(err) != subjects.KindContentPolicy || resp.Usage.InputTokens != 9 {
		t.Error(err, resp)
	}
	resp, err = streamGemini(text, []byte(`{"candidates":[{"finishReason":"OTHER"}],"usageMetadata":{"candidatesTokenCount":5}}`))
	if subjects.KindOf(err) != subjects.KindProvider || resp.Usage.OutputTokens != 5 || resp.Text != "a" {
		t.Error(err, resp)
	}
	stop := errors.New("enough")
	var again GeminiStream
	if _, err := again.Chunk(text, func(*Event) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// Many small pieces of a list are one text, up to the bound.
func TestReadGeminiLongText(t *testing.T) {
	t.Parallel()
	piece := strings.Repeat("x", 1<<20)
	var b strings.Builder
	for range 17 {
		b.WriteString(`,{"candidates":[{"content":{"parts":[{"text":"` + piece + `"}]}}]}`)
	}
	_, err := ReadGemini([]byte("[" + b.String()[1:] + "]"))
	if subjects.KindOf(err) != subjects.KindProvider || !strings.Contains(err.Error(), "16 MiB") {
		t.Error(err)
	}
}

var geminiSeeds = []string{
	`{"candidates":[{"content":{"parts":[{"text":"h\u00e9\n","thoughtSignature":"EjQK"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":2},"modelVersion":"m"}`,
	`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a": [1 , "x y"]}}},{"thought":true,"text":"t"},{"inlineData":{}}]},"finishReason":"MAX_TOKENS"}]}`,
	`{"promptFeedback":{"blockReason":"OTHER"}}`,
	`[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}]`,
	`[{"candidates":[{"content":{"parts":[{"text":"a"}]}}]},{"candidates":[{"finishReason":"SPII"}]}]`,
	`{"candidates":[{"content":{"parts":{"text":1}},"finishReason":7}],"usageMetadata":[1]}`,
}

func FuzzReadGemini(f *testing.F) {
	for _, s := range geminiSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !ValidJSON(body) {
			return
		}
		resp, err := ReadGemini(body)
		if resp == nil {
			t.Fatal("no response beside", err)
		}
		soundGemini(t, resp, err)
	})
}

// soundGemini checks what holds of any answer.
func soundGemini(t *testing.T, resp *Response, err error) {
	t.Helper()
	if kind := subjects.KindOf(err); err != nil && kind != subjects.KindProvider && kind != subjects.KindContentPolicy {
		t.Fatalf("kind %s", kind)
	}
	u := resp.Usage
	if u.InputTokens < 0 || u.OutputTokens < u.ReasoningTokens || u.TotalTokens != u.InputTokens+u.OutputTokens || resp.OutputBytes < int64(len(resp.Text)) {
		t.Fatalf("%+v", resp)
	}
	ids := map[string]bool{}
	for _, c := range resp.ToolCalls {
		if c.ID == "" || ids[c.ID] || !ValidJSON([]byte(c.Arguments)) {
			t.Fatalf("%+v", c)
		}
		ids[c.ID] = true
	}
	if err == nil && resp.FinishReason != "" && !slices.Contains([]string{"stop", "length", "tool_calls", "content_filter"}, resp.FinishReason) {
		t.Fatalf("finish %q", resp.FinishReason)
	}
}

func FuzzGeminiChunk(f *testing.F) {
	for _, s := range geminiSeeds {
		f.Add([]byte(s), []byte(geminiSeeds[0]))
	}
	f.Add([]byte("nonsense"), []byte("{"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		resp, err := streamGemini(first, second)
		if errors.Is(err, errGeminiFailure) {
			err = nil
		}
		soundGemini(t, resp, err)
	})
}
