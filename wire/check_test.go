package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckSaysWhereAndWhat(t *testing.T) {
	for _, tc := range []struct {
		in      string
		at      int
		problem string
	}{
		{`{"a":1}`, 7, ""},
		{`{"a":1`, 6, early},
		{`{"a":`, 5, early},
		{`{"a"`, 4, early},
		{`{`, 1, early},
		{`["a`, 3, early},
		{`{"a" 1}`, 5, noColon},
		{`{"a":1 "b":2}`, 7, noComma},
		{`{a:1}`, 1, noKey},
		{`{"a":1,}`, 7, noKey},
		{`[1,]`, 3, unwanted},
		{`[1}`, 2, noComma},
		{`{"a":1}}`, 7, afterEnd},
		{`{} {}`, 3, afterEnd},
		{`["a` + "\n" + `"]`, 3, badString},
		{`["\x"]`, 2, badString},
		{`["\u12g4"]`, 2, badString},
		{`[01]`, 1, badNumber},
		{`[-]`, 1, badNumber},
		{`[1.]`, 3, badNumber},
		{`[1e+]`, 4, badNumber},
		{`[nul]`, 1, unwanted},
		{"[\x00]", 1, unwanted},
		{strings.Repeat("[", maxDepth+1), maxDepth, tooNested},
		{strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), 2 * maxDepth, ""},
	} {
		at, problem := check(tc.in)
		if at != tc.at || problem != tc.problem {
			t.Errorf("check(%.40q) = %d, %q; want %d, %q", tc.in, at, problem, tc.at, tc.problem)
		}
	}
}

// A body of nothing but brackets must not cost a stack.
func TestCheckDoesNotRecurse(t *testing.T) {
	if _, err := Parse(Native, []byte(strings.Repeat("[", 8<<20))); err == nil {
		t.Fatal("accepted")
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-2.5e+3,"x\u00e9\n",{"b":null}],"c":true}`, `"plain text that is longer than eight bytes"`,
		`"\\\"\/\b\f\n\r\t"`, `[0,-0,1E5]`, `{"":{}}`, `  1  `, `{"a":01}`, `"\ud800"`, "\"\x7f\"", `[[],{}]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, problem := check(string(view([]byte(s))))
		deep := nested(s) > maxDepth
		if want := json.Valid([]byte(s)) && !deep; (problem == "") != want {
			t.Fatalf("check(%q) says %q, encoding/json says %v", s, problem, want)
		}
	})
}

// nested is how deep a valid JSON text nests.
func nested(s string) int {
	deepest, depth := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			i = skipString(s, i) - 1
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	return deepest
}

// FuzzWalk compares the walk over a document with encoding/json's decoding, and
// walks texts that are no JSON without harm.
func FuzzWalk(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,"x\"y",{"b":null}],"k\u0065y":true,"a":2}`, `[[],[1],{}]`, `{"a"`, `[1 2]`, `{"a":}`, `"\u00e9\ud83d\ude00\n"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, problem := check(string(view([]byte(s)))); problem != "" {
			walk(view([]byte(s)), false)
			return
		}
		if !utf8.ValidString(s) {
			return // Parse refuses it before it walks
		}
		var want any
		if err := json.Unmarshal([]byte(s), &want); err != nil {
			return // a number out of range
		}
		got, err := json.Marshal(walk(view([]byte(s)), true))
		if err != nil {
			t.Fatal(err)
		}
		expect, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(expect) {
			t.Fatalf("walk(%q) = %s, want %s", s, got, expect)
		}
	})
}

func walk(v raw, valid bool) any {
	switch {
	case v.isObject():
		m := map[string]any{}
		for f := range v.fields() {
			m[f.Key] = walk(f.Value, valid)
		}
		return m
	case v.isArray():
		list := []any{}
		for _, item := range v.items() {
			list = append(list, walk(item, valid))
		}
		return list
	case v.isString():
		if n := len(v.str()); valid && v.textLen() != n && !strings.Contains(v.str(), "\uFFFD") {
			panic("textLen is not the text's length")
		}
		return v.str()
	}
	var scalar any
	_ = json.Unmarshal([]byte(v), &scalar)
	return scalar
}
