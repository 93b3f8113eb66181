package check

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	v1 "github.com/weir-lb/weir/api/v1"
)

// The form that CI servers read: a suite, a test case for each case, with a failure or a skip.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string       `xml:"classname,attr"`
		Name    string       `xml:"name,attr"`
		Time    string       `xml:"time,attr"`
		Failure *junitReason `xml:"failure,omitempty"`
		Skipped *junitReason `xml:"skipped,omitempty"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
		Trace   string `xml:",chardata"`
	}
)

// WriteJUnit writes a result as JUnit XML; an inconclusive case is a skipped one.
func WriteJUnit(w io.Writer, out *v1.CoAPCheck) error {
	suite := junitSuite{Name: "weir coap check " + out.URI, Tests: len(out.Cases), Failures: out.Failed, Skipped: out.Inconclusive}
	total := 0.0
	for _, c := range out.Cases {
		total += c.Seconds
		one := junitCase{Class: strings.Join(strings.Split(c.ID, "_")[:3], "_"), Name: c.ID + " " + c.Title, Time: fmt.Sprintf("%.3f", c.Seconds)}
		switch c.Verdict {
		case Fail:
			one.Failure = &junitReason{c.Reason, strings.Join(c.Trace, "\n")}
		case Inconclusive:
			one.Skipped = &junitReason{Message: c.Reason}
		}
		suite.Cases = append(suite.Cases, one)
	}
	suite.Time = fmt.Sprintf("%.3f", total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
