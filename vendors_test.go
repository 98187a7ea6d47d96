package sluice_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	sluice "github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/vendors"
	"github.com/sluice-llm/sluice/sluicetest"
	"github.com/sluice-llm/sluice/subjects"
)

// vendor is one provider behind its fake.
type vendor struct {
	id, model, base string
	voice           vendors.Voice
	env             []string
	// noRead says that its API does not tell how much of a prompt came from a cache.
	noRead bool
}

func vendorTable() []vendor {
	return []vendor{
		{id: "openai", model: "gpt-4.1", base: "/v1", voice: vendors.OpenAI{Base: "/v1"}, env: []string{"OPENAI_API_KEY=k-111111"}},
		{id: "anthropic", model: "claude-sonnet-4-5", base: "/v1", voice: vendors.Anthropic{Base: "/v1"}, env: []string{"ANTHROPIC_API_KEY=k-111111"}},
		{id: "gemini", model: "gemini-2.5-flash", base: "/v1beta", voice: vendors.Gemini{Base: "/v1beta", NoIDs: true}, env: []string{"GOOGLE_API_KEY=k-111111"}},
		{id: "ollama", model: "llama3.2", voice: vendors.Ollama{}, noRead: true},
	}
}

func (v *vendor) start(t *testing.T) (*vendors.Server, *sluice.Node) {
	t.Helper()
	up := vendors.New(t, v.voice)
	variable := "LLM_BASE_URL_" + strings.ToUpper(strings.ReplaceAll(v.id, "-", "_"))
	node := sluicetest.Start(t, sluice.WithHTTP("127.0.0.1:0"), sluice.WithEnviron(append(v.env, variable+"="+up.URL+v.base)))
	return up, node
}

// asked is a conversation with everything in it that all of these can do, as an
// OpenAI SDK sends it.
const asked = `{"model":"%s/%s","messages":[
	{"role":"system","content":"Be brief."},{"role":"user","content":"weather in Graz and Wien?"},
	{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Graz\"}"}}]},
	{"role":"tool","tool_call_id":"c1","content":"rain"},
	{"role":"user","content":[{"type":"text","text":"and this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}],
	"tools":[{"type":"function","function":{"name":"weather","description":"of a city","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}],
	"temperature":0.5,"stop":["END"]%s}`

// TestVendorsThroughTheEdge asks each vendor's API through the whole node in the
// words of an OpenAI SDK: the answer, streamed or not, is the same one, and the
// usage record has the tokens by the contract's convention.
func TestVendorsThroughTheEdge(t *testing.T) {
	for _, v := range vendorTable() {
		t.Run(v.id, func(t *testing.T) {
			up, node := v.start(t)
			answer := &vendors.Answer{
				Pieces: []string{"Let me ", "look: "},
				Calls:  []vendors.Call{{ID: "x1", Name: "weather", Arguments: `{"city":"Wien"}`}, {ID: "x2", Name: "weather", Arguments: `{"city":"Bregenz \"am See\""}`}},
				Usage:  vendors.Usage{Fresh: 100, CacheRead: 50, Output: 20},
			}
			up.Next(vendors.Script{Answer: answer}, vendors.Script{Answer: answer, Split: 7, Framing: vendors.CRLF})
			want := `Let me look:  weather{"city":"Wien"} weather{"city":"Bregenz \"am See\""} tool_calls`
			if got := chatOver(t, node, fmt.Sprintf(asked, v.id, v.model, "")); got != want {
				t.Errorf("whole\n got %s\nwant %s", got, want)
			}
			if got := chatOver(t, node, fmt.Sprintf(asked, v.id, v.model, `,"stream":true,"stream_options":{"include_usage":true}`)); got != want {
				t.Errorf("streamed\n got %s\nwant %s", got, want)
			}
			for _, row := range recentRows(t.Context(), t, node.Client()) {
				read, fresh := int64(50), int64(100)
				if v.noRead {
					read, fresh = 0, row.InputTokens
				}
				if row.Provider != v.id || row.Outcome != "ok" || row.TokensEstimated || row.InputTokens != fresh || row.CacheReadTokens != read || row.OutputTokens != 20 {
					t.Errorf("%+v", row)
				}
			}
			for _, s := range up.Calls() {
				last := s.Messages[len(s.Messages)-1]
				if s.System != "Be brief." || len(s.Tools) != 1 || len(last.Images) != 1 || last.Images[0].Base64 != "iVBORw0KGgo=" || *s.Temperature != 0.5 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// chatOver makes one call over HTTP and writes its answer down in one form.
func chatOver(t *testing.T, node *sluice.Node, body string) string {
	t.Helper()
	resp, err := http.Post("http://"+node.HTTPAddr()+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s", resp.Status, text)
	}
	if !strings.Contains(body, `"stream":true`) {
		var c completion
		if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
			t.Fatal(err)
		}
		return c.Choices[0].Message.text() + " " + c.Choices[0].Finish
	}
	return readSSE(t, resp.Body)
}

type completion struct {
	Choices []struct {
		Message said   `json:"message"`
		Delta   said   `json:"delta"`
		Finish  string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt int64 `json:"prompt_tokens"`
	} `json:"usage"`
}

type said struct {
	Content string `json:"content"`
	Calls   []struct {
		Index    int `json:"index"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (s *said) text() string {
	text := s.Content
	for _, c := range s.Calls {
		text += " " + c.Function.Name + c.Function.Arguments
	}
	return text
}

// readSSE puts a stream together as an SDK does.
func readSSE(t *testing.T, body io.Reader) string {
	t.Helper()
	var whole said
	finish, usage, done := "", false, false
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if done = done || string(data) == "[DONE]"; !ok || done {
			continue
		}
		var c completion
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		usage = usage || c.Usage != nil && c.Usage.Prompt > 0
		for _, choice := range c.Choices {
			finish += choice.Finish
			whole.Content += choice.Delta.Content
			for _, call := range choice.Delta.Calls {
				for len(whole.Calls) <= call.Index {
					whole.Calls = append(whole.Calls, call)
					whole.Calls[len(whole.Calls)-1].Function.Arguments = ""
				}
				whole.Calls[call.Index].Function.Arguments += call.Function.Arguments
			}
		}
	}
	if !usage || !done {
		t.Errorf("usage %t, [DONE] %t", usage, done)
	}
	return whole.text() + " " + finish
}

// TestVendorsBreakOff: each vendor's stream, cut in the middle, is an error after
// output, with what was spent on record; one that errs before any output moves on.
func TestVendorsBreakOff(t *testing.T) {
	for _, v := range vendorTable() {
		t.Run(v.id, func(t *testing.T) {
			up, node := v.start(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			req := &subjects.Request{Prompt: subjects.Prompt{Messages: []subjects.Message{{Role: "user", Content: subjects.Text("hi")}}}, Model: v.id + "/" + v.model}
			call := func() (string, error) {
				text := ""
				_, err := subjects.CallStream(ctx, node.Client(), "interactive", req, func(ev subjects.Event) error {
					text += ev.Content
					return nil
				})
				return text, err
			}
			text := &vendors.Answer{Pieces: []string{"one ", "two ", "three ", "four "}, Usage: vendors.Usage{Fresh: 9, Output: 4}}
			up.Next(vendors.Script{Answer: text, Break: vendors.BreakCut, After: 4})
			got, err := call()
			if subjects.KindOf(err) != subjects.KindProvider || !strings.HasPrefix(got, "one ") {
				t.Errorf("cut: %q, %v", got, err)
			}
			row := recentRows(ctx, t, node.Client())[0]
			if !row.Partial || row.Outcome != string(subjects.KindProvider) || row.OutputTokens == 0 || row.InputTokens == 0 || row.TokensEstimated == (v.id == "gemini") { // which says with each chunk what was spent so far
				t.Errorf("cut: %+v", row)
			}
			up.Next(vendors.Script{Answer: text, Break: vendors.BreakError, Fault: vendors.ServerError}, vendors.Script{Answer: text})
			if got, err := call(); err != nil || got != text.Text() {
				t.Errorf("an error at first: %q, %v", got, err)
			}
		})
	}
}

// TestLocalModeStaysLocal: in mode local a local runner is not asked for a model
// that it would ask a vendor for.
func TestLocalModeStaysLocal(t *testing.T) {
	up := vendors.New(t, vendors.Ollama{})
	node := sluicetest.Start(t, sluice.WithEnviron([]string{"SEMANTIC_ANALYSIS_MODE=local", "LLM_BASE_URL_OLLAMA=" + up.URL}))
	req := &subjects.Request{Prompt: subjects.Prompt{Messages: []subjects.Message{{Role: "user", Content: subjects.Text("hi")}}}, Model: "ollama/gpt-oss:120b-cloud"}
	if _, err := subjects.Call(t.Context(), node.Client(), "interactive", req); subjects.KindOf(err) != subjects.KindProviderUnavailable {
		t.Errorf("a model of the cloud: %v", err)
	}
	if n := len(up.Calls()); n != 0 {
		t.Errorf("%d prompts left the machine", n)
	}
	req.Model = "ollama/llama3.2"
	if _, err := subjects.Call(t.Context(), node.Client(), "interactive", req); err != nil {
		t.Error(err)
	}
}
