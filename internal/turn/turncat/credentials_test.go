package turncat

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The vector was made with openssl: printf 1700003600:alice | openssl dgst -sha1 -hmac secret -binary | base64.
func TestEphemeralCredentials(t *testing.T) {
	now := time.Unix(1700000000, 0)
	got, err := Ephemeral("secret", "alice", time.Hour)(now)
	if err != nil {
		t.Fatal(err)
	}
	want := Credentials{User: "1700003600:alice", Password: "LLPLO4qjdVL2qZhwr3eImhn7J20=", Expires: time.Unix(1700003600, 0)}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, _ := Ephemeral("secret", "", time.Hour)(now); got.User != "1700003600" {
		t.Errorf("user %q", got.User)
	}
}

func TestCredentialForms(t *testing.T) {
	written := time.Unix(1700000000, 0)
	for text, want := range map[string]Credentials{
		"user1\npasswd1\n":                                    {User: "user1", Password: "passwd1"},
		"user1\r\npass wd1 \r\n":                              {User: "user1", Password: "pass wd1"},
		`{"username":"u","password":"p","uris":["turn:x"]}`:   {User: "u", Password: "p"},
		`{"username":"u","credential":"p","ttl":60}`:          {User: "u", Password: "p", Expires: written.Add(time.Minute)},
		`{"username":"1700000100:u","password":"p","ttl":60}`: {User: "1700000100:u", Password: "p", Expires: time.Unix(1700000100, 0)},
		`{"iceServers":[{"urls":["stun:x"]},{"username":"u","credential":"p","urls":["turn:x"]}],"iceTransportPolicy":"relay"}`: {User: "u", Password: "p"},
	} {
		if got, err := parseCredentials([]byte(text), written); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "user1", "user1\n", "{", "{}", `{"username":"u"}`, "a\nb\nc", `{"iceServers":[]}`, `{"username":3}`} {
		if got, err := parseCredentials([]byte(text), written); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestCredentialsFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	source := File(path)
	if _, err := source(time.Now()); err == nil {
		t.Error("no error without the file")
	}
	for _, user := range []string{"one", "two"} {
		if err := os.WriteFile(path, []byte(user+"\npassword\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := source(time.Now()); err != nil || got.User != user {
			t.Errorf("%+v, %v; want %s", got, err, user)
		}
	}
}

func FuzzCredentials(f *testing.F) {
	for _, seed := range []string{"user1\npasswd1\n", `{"username":"1700000100:u","password":"p","ttl":60}`, `{"iceServers":[{"username":"u","credential":"p"}]}`, `{"ttl":1e300,"username":"a","password":"b"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCredentials(data, time.Unix(1700000000, 0))
		if err == nil && (c.User == "" || c.Password == "" || len(c.User) > 512) {
			t.Errorf("%q: %+v", data, c)
		}
	})
}
