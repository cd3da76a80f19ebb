package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// What a reader can keep in mind.
const (
	mostLines  = 80 // of a function
	mostFields = 29 // of a struct
)

// Functions and structs stay short. Functions count in programs and test kits, not in tests.
func TestFunctionsAndStructsAreShort(t *testing.T) {
	t.Parallel()
	checked := 0
	files := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		checked++
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if lines := files.Position(n.End()).Line - files.Position(n.Pos()).Line + 1; lines > mostLines {
					t.Errorf("%s: %s has %d lines, and %d are allowed", files.Position(n.Pos()), n.Name, lines, mostLines)
				}
			case *ast.StructType:
				if fields := n.Fields.NumFields(); fields > mostFields {
					t.Errorf("%s: this struct has %d fields, and %d are allowed", files.Position(n.Pos()), fields, mostFields)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || checked < 100 {
		t.Errorf("%d files were checked: %v", checked, err)
	}
}
