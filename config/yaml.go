package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on a file. The parser's time grows with the square of the tokens and
// its stack with the depth, so both are counted before it runs.
const (
	maxFileBytes = 1 << 20
	maxTokens    = 20_000
	maxFlowDepth = 16
	maxColumn    = 128
)

// document is a parsed file: its root mapping (nil for an empty file) and the
// nodes behind its anchors.
type document struct {
	root    *ast.MappingNode
	anchors map[string]ast.Node
}

// parse reads one YAML document. Every fault it finds stands alone: after one,
// the text cannot be read further.
func parse(data []byte) (document, *Fault) {
	text, fault := sourceText(data)
	if fault != nil {
		return document{}, fault
	}
	tokens := lexer.Tokenize(text)
	if fault := checkTokens(tokens, strings.Split(text, "\n")); fault != nil {
		return document{}, fault
	}
	file, fault := parseTokens(tokens)
	if fault != nil {
		return document{}, fault
	}
	return onlyDocument(file)
}

// sourceText checks size and characters. Line ends become \n, a byte-order
// mark is left out.
func sourceText(data []byte) (string, *Fault) {
	if len(data) > maxFileBytes {
		return "", faultAt(position{}, "the file has more than %d bytes; a configuration is far smaller: is it the right file?", maxFileBytes)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	p := position{line: 1, column: 1}
	for i, r := range text {
		switch {
		case r == utf8.RuneError && invalidAt(text[i:]):
			return "", faultAt(p, "byte 0x%02x is not UTF-8; save the file as UTF-8", text[i])
		case r == '\n':
			p = position{line: p.line + 1}
		case r < 0x20 && r != '\t', r == 0x7f:
			return "", faultAt(p, "control character %U; remove it", r)
		}
		p.column++
	}
	return text, nil
}

func invalidAt(s string) bool {
	_, n := utf8.DecodeRuneInString(s)
	return n == 1
}

// checkTokens refuses what is no part of a configuration, before the parser
// spends time or stack on it.
func checkTokens(tokens token.Tokens, lines []string) *Fault {
	if len(tokens) > maxTokens {
		return faultAt(position{}, "the file has more than %d words; a configuration is far smaller: is it the right file?", maxTokens)
	}
	depth := 0
	for _, t := range tokens {
		depth += flowStep(t)
		if fault := checkToken(t, depth, lines); fault != nil {
			return fault
		}
	}
	return nil
}

func flowStep(t *token.Token) int {
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		return 1
	case token.MappingEndType, token.SequenceEndType:
		return -1
	}
	return 0
}

// unread are the parts of YAML that this file has no use for.
var unread = map[token.Type]string{
	token.TagType:        "tags (!…) are not read; write the plain value",
	token.DirectiveType:  "directives (%…) are not read; remove the line",
	token.MergeKeyType:   "merge keys (<<) are not read; write the keys out",
	token.MappingKeyType: "\"? key\" is not read; write \"key: value\"",
}

func checkToken(t *token.Token, depth int, lines []string) *Fault {
	p := at(t)
	if why, ok := unread[t.Type]; ok {
		return faultAt(p, "%s", why)
	}
	first := t.Prev == nil || t.Prev.Position.Line < t.Position.Line
	switch {
	case depth > maxFlowDepth:
		return faultAt(p, "nested more than %d deep", maxFlowDepth)
	case depth == 0 && p.column > maxColumn && (first || t.Type == token.SequenceEntryType):
		return faultAt(p, "indented more than %d columns", maxColumn)
	case t.Type == token.AnchorType && anchored(t):
		return faultAt(p, "one anchor after another; keep one")
	case first && !inBlockText(t) && tabIndent(lines, p.line):
		return faultAt(p, "a tab in the indentation; use spaces")
	}
	return nil
}

// anchored reports whether the anchor t follows an anchor's name.
func anchored(t *token.Token) bool {
	return t.Prev != nil && t.Prev.Prev != nil && t.Prev.Prev.Type == token.AnchorType
}

func inBlockText(t *token.Token) bool {
	return t.Prev != nil && (t.Prev.Type == token.LiteralType || t.Prev.Type == token.FoldedType)
}

func tabIndent(lines []string, line int) bool {
	if line < 1 || line > len(lines) {
		return false
	}
	s := lines[line-1]
	return strings.Contains(s[:len(s)-len(strings.TrimLeft(s, " \t"))], "\t")
}

// parseTokens runs the parser. A panic in it is a fault of the file to us.
func parseTokens(tokens token.Tokens) (file *ast.File, fault *Fault) {
	defer func() {
		if recover() != nil {
			file, fault = nil, faultAt(position{}, "the YAML reader cannot make sense of this file; write it more simply")
		}
	}()
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxFault(err)
	}
	return file, nil
}

// remedies are for what the parser says most.
var remedies = []struct{ said, do string }{
	{"mapping value is not allowed", "check the indentation, and put a text with \": \" in it in quotes"},
	{"',' or '}' must be specified", "put a text with { } or ${…} in it in quotes"},
	{"',' or ']' must be specified", "put a text with [ ] in it in quotes"},
	{"not found", "close the bracket"},
	{"could not find end character", "close the quotes"},
	{"unexpected key name", "check the indentation and that a \":\" follows each key"},
	{"cannot start any token", "put the text in quotes"},
}

func syntaxFault(err error) *Fault {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil {
		return faultAt(position{}, "not YAML; check the indentation")
	}
	said := strings.ReplaceAll(ye.GetMessage(), "\t", `\t`)
	for _, r := range remedies {
		if strings.Contains(said, r.said) {
			return faultAt(at(ye.GetToken()), "not YAML: %s; %s", said, r.do)
		}
	}
	return faultAt(at(ye.GetToken()), "not YAML: %s; check the indentation and the quotes", said)
}

// onlyDocument takes the one document of the file.
func onlyDocument(file *ast.File) (document, *Fault) {
	var doc document
	for i, d := range file.Docs {
		if i > 0 && d.Body != nil {
			return doc, faultAt(nodeAt(d.Body), "a second document; keep one, without \"---\" inside")
		}
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil || file.Docs[0].Body.Type() == ast.NullType {
		return doc, nil
	}
	body := file.Docs[0].Body
	root, ok := body.(*ast.MappingNode)
	if !ok {
		return doc, faultAt(nodeAt(body), "found %s; a configuration is keys such as \"providers:\" with their values", describe(body))
	}
	doc.root = root
	var fault *Fault
	doc.anchors, fault = anchors(root)
	return doc, fault
}

// follow returns the node that n stands for, n itself when that is no anchor
// or alias, and nil for an alias of nothing or of itself.
func (d document) follow(n ast.Node) ast.Node {
	for range maxFlowDepth {
		switch to := n.(type) {
		case *ast.AnchorNode:
			n = to.Value
		case *ast.AliasNode:
			n = d.anchors[to.Value.GetToken().Value]
		default:
			return n
		}
	}
	return nil
}

// anchorFinder collects the anchors of a tree.
type anchorFinder struct {
	found map[string]ast.Node
	fault *Fault
}

// Visit implements ast.Visitor.
func (f *anchorFinder) Visit(n ast.Node) ast.Visitor {
	a, ok := n.(*ast.AnchorNode)
	if !ok {
		return f
	}
	name := a.Name.GetToken().Value
	if _, twice := f.found[name]; twice && f.fault == nil {
		f.fault = faultAt(at(a.GetToken()), "the anchor &%s is defined twice; rename one", name)
	}
	f.found[name] = a.Value
	return f
}

func anchors(root ast.Node) (map[string]ast.Node, *Fault) {
	f := &anchorFinder{found: map[string]ast.Node{}}
	ast.Walk(f, root)
	return f.found, f.fault
}

// position is a place in the file; the zero value is the file as a whole.
type position struct{ line, column int }

func at(t *token.Token) position {
	return position{line: t.Position.Line, column: max(t.Position.Column, 1)}
}

// nodeAt is where a node begins: a block mapping at its first key.
func nodeAt(n ast.Node) position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return at(m.Values[0].Key.GetToken())
	}
	return at(n.GetToken())
}

func faultAt(p position, format string, args ...any) *Fault {
	return &Fault{Line: p.line, Column: p.column, Message: fmt.Sprintf(format, args...)}
}

// describe names what a node is, for a message.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	case *ast.StringNode:
		return show(n.Value)
	case *ast.LiteralNode:
		return show(n.Value.Value)
	}
	return show(n.GetToken().Value)
}
