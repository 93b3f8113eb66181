package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// docs/coap-peers.md has the tests with other people's programs, each of them, and the versions that these tests install.
func TestPeersNameTheirTests(t *testing.T) {
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(t `)
	for _, folder := range []string{"../../internal/coap", "../../internal/dtls", "../../internal/cli/coap"} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, found := range function.FindAllSubmatch(text, -1) {
				declared[string(found[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	page := clitest.ReadPage(t, "../../docs/coap-peers.md")
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| .*$`).FindAllString(page, -1) {
		cells := strings.Split(row, " | ")
		if strings.HasPrefix(row, "| peer |") {
			continue
		}
		names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row, -1)
		if len(cells) != 7 || len(names) == 0 || cells[6] != "passes |" && !strings.HasPrefix(cells[6], "**fails**: ") {
			t.Errorf("a row without seven cells, a test or a verdict: %s", row)
		}
		for _, name := range names {
			listed[name[1]] = true
			if !declared[name[1]] {
				t.Errorf("there is no %s: %s", name[1], row)
			}
		}
	}
	ofPeers := regexp.MustCompile(`Aiocoap|MbedTLS|TinyDTLS|Californium|Libcoap|OpenSSL|GnuTLS|TestPeers|TestPion`)
	for name := range declared {
		if ofPeers.MatchString(name) && !strings.HasPrefix(name, "TestEveryCalifornium") && !listed[name] { // those run no Californium
			t.Errorf("docs/coap-peers.md lacks %s", name)
		}
	}
	for _, c := range []struct{ peer, file, version string }{
		{"aiocoap", "../../internal/cli/coap/testdata/peers/requirements.txt", `(?m)^aiocoap==(\S+)$`},
		{"DTLSSocket", "../../internal/cli/coap/testdata/peers/requirements.txt", `(?m)^DTLSSocket==(\S+)$`},
		{"python-mbedtls", "../../internal/cli/coap/testdata/peers/requirements.txt", `(?m)^python-mbedtls==(\S+)$`},
		{"Californium", "../../internal/cli/coap/testdata/californium/pom.xml", `<californium>([^<]+)</californium>`},
		{"pion", "../../go.mod", `github.com/pion/dtls/v3 v(\S+)`},
	} {
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		versions := regexp.MustCompile(c.version).FindAllStringSubmatch(string(text), -1)
		if len(versions) == 0 {
			t.Errorf("%s names no version of %s", c.file, c.peer)
		}
		for _, v := range versions {
			if !regexp.MustCompile(`\| ` + c.peer + `[^|]* ` + regexp.QuoteMeta(v[1]) + `(,| \|)`).MatchString(page) {
				t.Errorf("docs/coap-peers.md lacks %s %s, of %s", c.peer, v[1], c.file)
			}
		}
	}
}
