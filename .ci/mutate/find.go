package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// mutant is one small change of a package. Every mutant of a package is compiled into one test binary; the environment of a
// run selects the one that is active.
type mutant struct {
	number int
	source *source
	line   int
	id     string // package/file function | original -> changed [#k]; holds while lines move
	edit   edit

	outcome outcome
}

// edit replaces a range of the source text. before and after surround the text, whose own mutants stay inside it.
type edit struct {
	start, end    int
	before, after func(number int) string
}

// finder walks one file and collects its mutants.
type finder struct {
	*target
	source   *source
	function string
	found    []*mutant
	seen     map[string]int
}

// find returns the mutants of a package in the order of its source text.
func (t *target) find() []*mutant {
	var all []*mutant
	for _, s := range t.sources {
		f := &finder{target: t, source: s, seen: map[string]int{}}
		for _, declaration := range s.file.Decls {
			f.function = "var"
			if fn, ok := declaration.(*ast.FuncDecl); ok {
				f.function = functionName(fn)
			}
			f.walk(declaration)
		}
		all = append(all, f.found...)
	}
	for i, m := range all {
		m.number = i + 1
	}
	return all
}

func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	receiver := types.ExprString(fn.Recv.List[0].Type)
	return strings.TrimPrefix(receiver, "*") + "." + fn.Name.Name
}

func (f *finder) walk(root ast.Node) {
	var signatures []*ast.FuncType
	var stack []ast.Node
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			switch stack[len(stack)-1].(type) {
			case *ast.FuncDecl, *ast.FuncLit:
				signatures = signatures[:len(signatures)-1]
			}
			stack = stack[:len(stack)-1]
			return true
		}
		switch n := n.(type) {
		case *ast.GenDecl:
			if n.Tok == token.CONST || n.Tok == token.TYPE {
				return false
			}
		case *ast.FuncDecl:
			signatures = append(signatures, n.Type)
		case *ast.FuncLit:
			signatures = append(signatures, n.Type)
		case *ast.BinaryExpr:
			f.binary(n)
		case *ast.IfStmt:
			f.condition(n.Cond)
		case *ast.BlockStmt:
			f.statements(n.List)
		case *ast.CaseClause:
			f.statements(n.Body)
		case *ast.ReturnStmt:
			f.returned(n, signatures[len(signatures)-1])
		}
		stack = append(stack, n)
		return true
	})
}

// negated and moved are the comparisons that a comparison becomes; swapped is what an operator becomes.
var (
	negated = map[token.Token]token.Token{
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
	}
	moved   = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	swapped = map[token.Token]token.Token{
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
		token.AND: token.OR, token.OR: token.AND, token.XOR: token.AND, token.AND_NOT: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
	}
)

// binary mutates comparisons (negated, boundary moved), `&&` and `||` (either side ignored) and arithmetic.
func (f *finder) binary(e *ast.BinaryExpr) {
	if f.constant(e) {
		return
	}
	if e.Op == token.LAND || e.Op == token.LOR {
		ignored, format := "true", ") || weirMutant(%d))"
		if e.Op == token.LOR {
			ignored, format = "false", ") && !weirMutant(%d))"
		}
		f.add(e.X, f.raw(e), ignored+" "+e.Op.String()+" "+f.raw(e.Y), "((", format)
		f.add(e.Y, f.raw(e), f.raw(e.X)+" "+e.Op.String()+" "+ignored, "((", format)
		return
	}
	with := func(op token.Token) string { return f.raw(e.X) + " " + op.String() + " " + f.raw(e.Y) }
	if op, ok := moved[e.Op]; ok {
		f.add(e, f.raw(e), with(op), "(weirMutant(%d) && ("+escape(with(op))+") || !weirMutant(%[1]d) && (", "))")
	}
	if op, ok := negated[e.Op]; ok {
		f.add(e, f.raw(e), with(op), "((", ") != weirMutant(%d))")
	}
	if op, ok := swapped[e.Op]; ok && f.number(e) {
		f.add(e, f.raw(e), with(op), "func() "+f.typeName(e)+" { if weirMutant(%d) { return "+escape(with(op))+" }; return ", " }()")
	}
}

// condition negates what decides an if and is neither a comparison nor made of several conditions.
func (f *finder) condition(e ast.Expr) {
	if _, ok := ast.Unparen(e).(*ast.BinaryExpr); ok || f.constant(e) {
		return
	}
	f.add(e, "if "+f.raw(e), "if !("+f.raw(e)+")", "((", ") != weirMutant(%d))")
}

// statements removes calls, assignments, steps and early returns.
func (f *finder) statements(list []ast.Stmt) {
	for i, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); !ok || types.ExprString(call.Fun) == "panic" {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || blank(s.Lhs) {
				continue
			}
		case *ast.IncDecStmt:
		case *ast.ReturnStmt:
			if len(s.Results) > 0 || i != len(list)-1 {
				continue
			}
		default:
			continue
		}
		f.add(s, f.raw(s), "removed", "if !weirMutant(%d) { ", " }")
	}
}

func blank(list []ast.Expr) bool {
	for _, e := range list {
		if name, ok := e.(*ast.Ident); !ok || name.Name != "_" {
			return false
		}
	}
	return true
}

// returned makes a return statement answer zero values, and true for false.
func (f *finder) returned(s *ast.ReturnStmt, signature *ast.FuncType) {
	interesting := false
	for _, e := range s.Results {
		value := f.info.Types[e]
		switch {
		case value.Value != nil && value.Value.Kind() == constant.Bool:
			f.add(e, "return "+f.raw(e), fmt.Sprintf("return %v", !constant.BoolVal(value.Value)), "(", " != weirMutant(%d))")
		case value.IsNil(), value.Value != nil && isZero(value.Value), emptyLiteral(e), f.comparison(e):
		default:
			interesting = true
		}
	}
	if !interesting || signature.Results.NumFields() != len(s.Results) {
		return
	}
	var zeros []string
	for _, field := range signature.Results.List {
		for range max(len(field.Names), 1) {
			zeros = append(zeros, "*new("+f.raw(field.Type)+")")
		}
	}
	f.add(s, f.raw(s), "return zero values", "if weirMutant(%d) { return "+escape(strings.Join(zeros, ", "))+" }; ", "")
}

func (f *finder) comparison(e ast.Expr) bool {
	b, ok := ast.Unparen(e).(*ast.BinaryExpr)
	return ok && (negated[b.Op] != 0 || b.Op == token.LAND || b.Op == token.LOR)
}

func isZero(v constant.Value) bool {
	switch v.Kind() {
	case constant.String:
		return constant.StringVal(v) == ""
	case constant.Int, constant.Float:
		return constant.Sign(v) == 0
	}
	return false
}

func emptyLiteral(e ast.Expr) bool {
	literal, ok := e.(*ast.CompositeLit)
	return ok && len(literal.Elts) == 0
}

func (f *finder) constant(e ast.Expr) bool { return f.info.Types[e].Value != nil }

func (f *finder) number(e ast.Expr) bool {
	basic, ok := f.info.Types[e].Type.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsNumeric != 0
}

func (f *finder) typeName(e ast.Expr) string {
	return types.TypeString(f.info.Types[e].Type, func(p *types.Package) string {
		if p == f.pkg {
			return ""
		}
		return p.Name()
	})
}

// raw is the source text of a node in one line.
func (f *finder) raw(n ast.Node) string {
	text := f.source.text[f.offset(n.Pos()):f.offset(n.End())]
	return string(bytes.Join(bytes.Fields(text), []byte(" ")))
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func escape(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// add notes a mutant. What would repeat a function literal or a comment is left out: one line cannot hold it.
func (f *finder) add(n ast.Node, from, to, before, after string) {
	if strings.Contains(before, "//") || strings.Contains(before, "func(") && strings.Count(before, "func(") > 1 {
		return
	}
	id := fmt.Sprintf("%s/%s %s | %s -> %s", shortPath(f.path), filepath.Base(f.source.path), f.function, shortened(from), shortened(to))
	f.seen[id]++
	if k := f.seen[id]; k > 1 {
		id = fmt.Sprintf("%s #%d", id, k)
	}
	printed := func(format string) func(int) string {
		return func(number int) string {
			if !strings.Contains(format, "%d") && !strings.Contains(format, "%[1]d") {
				return strings.ReplaceAll(format, "%%", "%")
			}
			return fmt.Sprintf(format, number)
		}
	}
	f.found = append(f.found, &mutant{
		source: f.source, line: f.fset.Position(n.Pos()).Line, id: id,
		edit: edit{start: f.offset(n.Pos()), end: f.offset(n.End()), before: printed(before), after: printed(after)},
	})
}

func shortened(s string) string {
	if len(s) > 90 {
		return s[:87] + "..."
	}
	return s
}

func shortPath(path string) string {
	_, after, _ := strings.Cut(path, "/internal/")
	return after
}
