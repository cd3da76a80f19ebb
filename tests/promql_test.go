package tests

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// expression checks an expression of Prometheus' language: as much of the language as
// alerts and dashboard use.
type expression struct {
	known  vocabulary
	jobs   []string
	used   map[string]bool
	report func(format string, a ...any)
	tokens []string
}

var (
	tokenForm = regexp.MustCompile(`"[^"]*"|'[^']*'|[a-zA-Z_:][\w:]*|[0-9][0-9a-z.]*|[=!<>]=|[=!]~|[-+*/<>=(){}\[\],]|\S`)
	nameForm  = regexp.MustCompile(`^[a-zA-Z_:][\w:]*$`)
	rangeForm = regexp.MustCompile(`^([0-9]+[smhd])+$`)
)

// What the language has.
var (
	aggregations = []string{"sum", "min", "max", "count", "avg"}
	onRanges     = []string{"rate", "increase", "deriv", "changes", "min_over_time"}
	functions    = []string{"abs", "absent", "histogram_quantile", "time", "vector", "rate", "increase", "deriv", "changes", "min_over_time"}
	operators    = [][]string{{"or"}, {"and", "unless"}, {"==", "!=", "<", ">", "<=", ">="}, {"+", "-"}, {"*", "/"}} // the loosest first
)

// syntax is why an expression cannot be read.
type syntax string

// check returns the labels of what the expression finds.
func (e *expression) check(text string) (labels map[string]bool) {
	e.tokens = tokenForm.FindAllString(text, -1)
	defer func() {
		if why, ok := recover().(syntax); ok {
			e.report("%s in %s", why, text)
		}
	}()
	labels = e.binary(0)
	if len(e.tokens) > 0 {
		panic(syntax("unexpected " + e.tokens[0]))
	}
	return labels
}

func (e *expression) peek() string {
	if len(e.tokens) == 0 {
		return ""
	}
	return e.tokens[0]
}

func (e *expression) next() string {
	if len(e.tokens) == 0 {
		panic(syntax("the expression ends too early"))
	}
	token := e.tokens[0]
	e.tokens = e.tokens[1:]
	return token
}

// takes reads the token if it is there.
func (e *expression) takes(token string) bool {
	if e.peek() != token {
		return false
	}
	e.next()
	return true
}

func (e *expression) want(token string) {
	if !e.takes(token) {
		panic(syntax("want " + token + ", there is " + strconv.Quote(e.peek())))
	}
}

// list reads labels in parentheses.
func (e *expression) list() map[string]bool {
	labels := make(map[string]bool)
	e.want("(")
	for {
		labels[e.next()] = true
		if !e.takes(",") {
			e.want(")")
			return labels
		}
	}
}

// among reports labels that there are not.
func (e *expression) among(labels, all map[string]bool) {
	for label := range labels {
		if !all[label] {
			e.report("what is grouped or matched has no label %s", label)
		}
	}
}

// binary reads operators of a level or tighter ones. Labels are nil for a number.
func (e *expression) binary(level int) map[string]bool {
	if level == len(operators) {
		return e.operand()
	}
	left := e.binary(level + 1)
	for slices.Contains(operators[level], e.peek()) {
		op := e.next()
		var on map[string]bool
		if e.takes("on") {
			on = e.list()
		}
		right := e.binary(level + 1)
		switch {
		case left == nil:
			left = right
		case right == nil:
		case on != nil:
			e.among(on, left)
			e.among(on, right)
			if slices.Contains(operators[3], op) || slices.Contains(operators[4], op) {
				left = on
			}
		case !maps.Equal(left, right):
			e.report("the two sides of %q never match: %v and %v", op, slices.Sorted(maps.Keys(left)), slices.Sorted(maps.Keys(right)))
		}
	}
	return left
}

func (e *expression) operand() (labels map[string]bool) {
	token := e.next()
	switch {
	case token == "(":
		labels = e.binary(0)
		e.want(")")
		return labels
	case token == "-":
		return e.operand()
	case token[0] >= '0' && token[0] <= '9':
		return nil
	case !nameForm.MatchString(token):
		panic(syntax("unexpected " + token))
	case slices.Contains(aggregations, token):
		by := make(map[string]bool)
		if e.takes("by") {
			by = e.list()
		}
		e.want("(")
		e.among(by, e.binary(0))
		e.want(")")
		return by
	case e.peek() == "(":
		return e.call(token)
	}
	labels, ranged := e.selector(token)
	if ranged {
		panic(syntax("there is a range of " + token + " outside a function"))
	}
	return labels
}

// call reads the arguments of a function.
func (e *expression) call(name string) (labels map[string]bool) {
	if !slices.Contains(functions, name) {
		panic(syntax("there is no function " + name))
	}
	e.want("(")
	switch {
	case name == "time":
	case slices.Contains(onRanges, name):
		metric := e.next()
		var ranged bool
		if labels, ranged = e.selector(metric); !ranged {
			panic(syntax(name + " wants a range of " + metric))
		}
		wanted := name == "rate" || name == "increase"
		if s, ok := e.known[metric]; ok && s.counter != wanted {
			e.report("%s of %s: whether it is a counter is %v", name, metric, s.counter)
		}
	case name == "histogram_quantile":
		e.binary(0)
		e.want(",")
		labels = maps.Clone(e.binary(0))
		if !labels["le"] {
			e.report("%s needs the label le", name)
		}
		delete(labels, "le")
	default:
		labels = e.binary(0)
		switch name {
		case "vector":
			labels = map[string]bool{}
		case "absent": // has those that are asked for
			labels = map[string]bool{"job": true}
		}
	}
	e.want(")")
	return labels
}

// selector reads what follows the name of a metric.
func (e *expression) selector(metric string) (labels map[string]bool, ranged bool) {
	s, ok := e.known[metric]
	if !ok {
		e.report("there is no metric %s", metric)
	}
	e.used[s.family] = true
	labels = make(map[string]bool)
	for label := range s.labels {
		labels[label] = true
	}
	if e.takes("{") {
		for !e.takes("}") {
			label, op, value := e.next(), e.next(), strings.Trim(e.next(), `"'`)
			if values, has := s.labels[label]; ok && !has {
				e.report("%s has no label %s", metric, label)
			} else if ok {
				e.value(label, op, value, values)
			}
			if !e.takes(",") {
				e.want("}")
				break
			}
		}
	}
	if e.takes("[") {
		if span := e.next(); !rangeForm.MatchString(span) {
			panic(syntax("the range is " + span))
		}
		e.want("]")
		ranged = true
	}
	if e.takes("offset") {
		if span := e.next(); !rangeForm.MatchString(span) {
			panic(syntax("the offset is " + span))
		}
	}
	return labels, ranged
}

// value checks a value that a label is compared with: all alternatives of a pattern.
func (e *expression) value(label, op, value string, values map[string]bool) {
	if label == "job" && !slices.Contains(e.jobs, value) {
		e.report("job is never %s, but %q", value, e.jobs)
	}
	alternatives := []string{regexp.QuoteMeta(value)}
	switch op {
	case "=", "!=":
	case "=~", "!~":
		alternatives = strings.Split(value, "|")
	default:
		panic(syntax("unexpected " + op))
	}
	if values == nil {
		return
	}
	for _, alternative := range alternatives {
		pattern, err := regexp.Compile("^(?:" + alternative + ")$")
		if err != nil {
			panic(syntax(err.Error()))
		}
		seen := label == "type" && isEvent(strings.ReplaceAll(alternative, `\`, ""))
		for v := range values {
			seen = seen || pattern.MatchString(v)
		}
		if !seen {
			e.report("%s is never %s", label, alternative)
		}
	}
}
