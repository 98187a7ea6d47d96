package openai

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/sluice-llm/sluice/subjects"
	"github.com/sluice-llm/sluice/wire"
)

// gateway is the least that stands between OpenAI's SDK and a provider: what
// the SDK sends is parsed, and what the provider answers is encoded for it.
func gateway(t *testing.T, p *Provider) sdk.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		req, err := wire.Parse(wire.OpenAIChat, body)
		if err != nil {
			w.WriteHeader(400)
			_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": subjects.AsError(err).Message}})
			return
		}
		serve(t, w, r.Context(), p, req)
	}))
	t.Cleanup(s.Close)
	return sdk.NewClient(option.WithBaseURL(s.URL), option.WithAPIKey("k"), option.WithMaxRetries(0), option.WithHTTPClient(s.Client()))
}

func serve(t *testing.T, w http.ResponseWriter, ctx context.Context, p *Provider, req *wire.Request) { //nolint:revive // test helper
	j := job(t, wire.Native, nativeHi)
	j.Request = req
	res := &subjects.Result{CallID: "c1", Provider: "openai"}
	if !req.Head.Stream {
		resp, err := p.Complete(ctx, j)
		if err == nil {
			res.Usage = resp.Usage
			body, encErr := wire.EncodeResponse(wire.OpenAIChat, resp, res)
			err = encErr
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
	enc := wire.NewStreamEncoder(wire.OpenAIChat, &req.Head, "c1", j.Model)
	emit := func(b []byte) error {
		_, err := io.WriteString(w, "data: "+string(b)+"\n\n")
		return err
	}
	resp, err := p.Stream(ctx, j, func(ev *wire.Event) error { return enc.Event(ev, emit) })
	if err == nil {
		res.Usage = resp.Usage
		err = enc.Finish(resp, res, emit)
	}
	if err != nil {
		t.Error(err)
	}
	_, _ = io.WriteString(w, doneLine)
}

func params() sdk.ChatCompletionNewParams {
	return sdk.ChatCompletionNewParams{
		Model: "auto",
		Messages: []sdk.ChatCompletionMessageParamUnion{
			sdk.DeveloperMessage("be brief"),
			sdk.UserMessage([]sdk.ChatCompletionContentPartUnionParam{
				sdk.TextContentPart("what is this?"),
				sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64,AA==", Detail: "low"}),
			}),
			sdk.AssistantMessage("a cat"),
			sdk.ToolMessage("42", "call_1"),
		},
		Temperature: sdk.Float(0.5), Seed: sdk.Int(7), MaxCompletionTokens: sdk.Int(100), ParallelToolCalls: sdk.Bool(false),
		Tools: []sdk.ChatCompletionToolUnionParam{sdk.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "f", Description: sdk.String("d"), Strict: sdk.Bool(true), Parameters: shared.FunctionParameters{"type": "object"},
		})},
		ResponseFormat: sdk.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "n", Schema: map[string]any{"type": "object"}},
		}},
	}
}

// What the SDK sends arrives at the provider with nothing but the model changed.
func TestSDKRequestPassesThrough(t *testing.T) {
	var got []byte
	p := fake(t, func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		io.WriteString(w, answer)
	})
	client := gateway(t, p)
	want := params()
	c, err := client.Chat.Completions.New(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	want.Model = "gpt-4o"
	sent, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(sent) {
		t.Errorf("\n got %s\nwant %s", got, sent)
	}
	if c.Choices[0].Message.Content != "hello" || c.Usage.TotalTokens != 12 || c.Usage.PromptTokensDetails.CachedTokens != 4 || c.JSON.ExtraFields["new"].Raw() != "true" {
		t.Errorf("%s", c.RawJSON())
	}
}

func TestSDKStreams(t *testing.T) {
	p := fake(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, chunk(role, "null")+chunk(`{"content":"he"}`, "null")+chunk(`{"content":"llo"}`, "null")+chunk(`{}`, `"stop"`)+usageLine+doneLine)
	})
	client := gateway(t, p)
	for _, wantUsage := range []bool{false, true} {
		in := params()
		if wantUsage {
			in.StreamOptions.IncludeUsage = sdk.Bool(true)
		}
		stream := client.Chat.Completions.NewStreaming(t.Context(), in)
		acc := sdk.ChatCompletionAccumulator{}
		n := 0
		for stream.Next() {
			n++
			acc.AddChunk(stream.Current())
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		if acc.Choices[0].Message.Content != "hello" || acc.Choices[0].FinishReason != "stop" || (acc.Usage.TotalTokens == 12) != wantUsage {
			t.Errorf("%d chunks: %+v", n, acc.ChatCompletion)
		}
		stream.Close()
	}
}

func TestSDKSeesABadRequest(t *testing.T) {
	client := gateway(t, fake(t, func(http.ResponseWriter, *http.Request) { t.Error("the provider is asked") }))
	in := params()
	in.Temperature = sdk.Float(9)
	_, err := client.Chat.Completions.New(t.Context(), in)
	var apiErr *sdk.Error
	if !errors.As(err, &apiErr) || apiErr.StatusCode != 400 || !strings.Contains(apiErr.Message, "temperature: must be a number from 0 to 2") {
		t.Errorf("%v", err)
	}
}

// The SDK reads what we make from the hub form.
func TestSDKReadsWhatWeMake(t *testing.T) {
	resp := &wire.Response{Text: "hé\n", FinishReason: "length", ToolCalls: []subjects.ToolCall{{ID: "1", Name: "f", Arguments: `{"a":1}`}}}
	res := &subjects.Result{CallID: "c1", ModelRaw: "m", Usage: subjects.Usage{InputTokens: 3, OutputTokens: 4, CacheReadTokens: 5, ReasoningTokens: 2}}
	body, err := wire.EncodeResponse(wire.OpenAIChat, resp, res)
	if err != nil {
		t.Fatal(err)
	}
	var c sdk.ChatCompletion
	if err := json.Unmarshal(body, &c); err != nil {
		t.Fatal(err)
	}
	msg := c.Choices[0].Message
	if c.ID != "chatcmpl-c1" || c.Object != "chat.completion" || c.Model != "m" || c.Created == 0 || msg.Content != "hé\n" || string(msg.Role) != "assistant" {
		t.Errorf("%s", body)
	}
	if call := msg.ToolCalls[0]; call.ID != "1" || call.Function.Name != "f" || call.Function.Arguments != `{"a":1}` || c.Choices[0].FinishReason != "length" {
		t.Errorf("%s", body)
	}
	if u := c.Usage; u.PromptTokens != 8 || u.CompletionTokens != 4 || u.TotalTokens != 12 || u.PromptTokensDetails.CachedTokens != 5 || u.CompletionTokensDetails.ReasoningTokens != 2 {
		t.Errorf("%s", body)
	}
	acc := sdk.ChatCompletionAccumulator{}
	enc := wire.NewStreamEncoder(wire.OpenAIChat, &wire.Head{StreamUsage: true}, "c1", "m")
	emit := func(b []byte) error {
		var c sdk.ChatCompletionChunk
		if err := json.Unmarshal(b, &c); err != nil {
			return err
		}
		if c.Object != "chat.completion.chunk" || !acc.AddChunk(c) {
			t.Errorf("not accepted: %s", b)
		}
		return nil
	}
	for _, ev := range []wire.Event{{Text: "a"}, {Text: "b"}, {ToolCall: &resp.ToolCalls[0]}, {ToolCall: &subjects.ToolCall{ID: "2", Name: "g", Arguments: "{}"}}} {
		if err := enc.Event(&ev, emit); err != nil {
			t.Fatal(err)
		}
	}
	if err := enc.Finish(&wire.Response{}, res, emit); err != nil {
		t.Fatal(err)
	}
	m := acc.Choices[0].Message
	if m.Content != "ab" || len(m.ToolCalls) != 2 || m.ToolCalls[1].Function.Name != "g" || acc.Choices[0].FinishReason != "tool_calls" || acc.Usage.TotalTokens != 12 {
		t.Errorf("%+v", acc.ChatCompletion)
	}
}

// What we send for a native request is what the SDK would.
func TestSDKSendsTheSame(t *testing.T) {
	const rest = `"tools":[{"name":"f","parameters":{"type":"object"}}],"toolChoice":{"name":"f"},"maxTokens":9,"topP":0.5,"stop":["END"],"responseFormat":{"type":"json_schema","name":"n","schema":{"type":"object"}}}`
	want := sdk.ChatCompletionNewParams{
		Model:    "gpt-4o",
		Messages: []sdk.ChatCompletionMessageParamUnion{sdk.SystemMessage("s"), sdk.UserMessage("u")},
		Tools: []sdk.ChatCompletionToolUnionParam{sdk.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "f", Parameters: shared.FunctionParameters{"type": "object"},
		})},
		ToolChoice: sdk.ToolChoiceOptionFunctionToolChoice(sdk.ChatCompletionNamedToolChoiceFunctionParam{Name: "f"}),
		MaxTokens:  sdk.Int(9), TopP: sdk.Float(0.5),
		Stop: sdk.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"END"}},
		ResponseFormat: sdk.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "n", Schema: map[string]any{"type": "object"}},
		}},
	}
	same(t, `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}],`+rest, want)

	call := sdk.ChatCompletionAssistantMessageParam{ToolCalls: []sdk.ChatCompletionMessageToolCallUnionParam{{
		OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
			ID: "1", Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: "f", Arguments: "{}"},
		},
	}}}
	call.Content.OfString = sdk.String("x")
	want.Messages = append(want.Messages,
		sdk.UserMessage([]sdk.ChatCompletionContentPartUnionParam{
			sdk.TextContentPart("see"),
			sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: "https://x/y", Detail: "low"}),
		}),
		sdk.ChatCompletionMessageParamUnion{OfAssistant: &call}, sdk.ToolMessage("r", "1"))
	same(t, `{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},
		{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","imageUrl":"https://x/y","detail":"low"}]},
		{"role":"assistant","content":"x","toolCalls":[{"id":"1","name":"f","arguments":"{}"}]},{"role":"tool","toolCallId":"1","content":"r"}],`+rest, want)
}

func same(t *testing.T, native string, want sdk.ChatCompletionNewParams) {
	t.Helper()
	out, err := job(t, wire.Native, native).Request.OpenAIChat("gpt-4o", false, true)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var g, w any
	if json.Unmarshal(out, &g) != nil || json.Unmarshal(sent, &w) != nil || !reflect.DeepEqual(g, w) {
		t.Errorf("\n got %s\nwant %s", out, sent)
	}
}
