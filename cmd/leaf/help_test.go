package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Each setting of leaf serve is in the help once, in its group.
func TestHelpOfServe(t *testing.T) {
	cleanEnv(t)
	_, help, _ := leaf(t, "serve", "--help")
	help = help[strings.Index(help, "\nUsage:\n")+1:]
	var titles []string
	for _, found := range regexp.MustCompile(`(?m)^([A-Za-z ]+):$`).FindAllStringSubmatch(help, -1) {
		titles = append(titles, found[1])
	}
	want := "Usage, Examples, Start here, NATS, State, Snowflakes, Limits, HTTP, Log, Flags, Global flags"
	if got := strings.Join(titles, ", "); got != want {
		t.Errorf("the help has the parts %s; want %s", got, want)
	}
	for flag, title := range map[string]string{
		"--tag NAME": "Start here", "--creds FILE": "NATS", "--mysql-file FILE": "State", "--epoch MILLI": "Snowflakes",
		"--max-batch int": "Limits", "--http-token-file FILE": "HTTP", "--log-level LEVEL": "Log",
	} {
		_, part, _ := strings.Cut(help, "\n"+title+":\n")
		part, _, _ = strings.Cut(part, "\n\n")
		if !strings.Contains(part, " "+flag) || strings.Count(help, " "+flag) != 1 {
			t.Errorf("%s is not in %s, once:\n%s", flag, title, help)
		}
	}
	newServeCmd().Flags().VisitAll(func(f *pflag.Flag) {
		if strings.Count(help, " --"+f.Name+" ") == 0 {
			t.Errorf("the help lacks --%s", f.Name)
		}
	})
}
