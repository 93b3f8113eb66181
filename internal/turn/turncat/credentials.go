package turncat

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/readfile"
)

// Credentials are a long-term credential of RFC 8489 section 9.2.
type Credentials struct {
	User, Password string
	// Expires is when the server stops accepting them; zero: never, or not known.
	Expires time.Time
}

// Source returns credentials that are valid at now. It is called for every new session, and again before credentials
// expire. It must not block for long, because a worker calls it.
type Source func(now time.Time) (Credentials, error)

// Static returns a Source of a user and a password that never change.
func Static(user, password string) Source {
	return func(time.Time) (Credentials, error) {
		return Credentials{User: user, Password: password, Expires: expiryOf(user)}, nil
	}
}

// Ephemeral makes time-windowed credentials from a shared secret, valid for ttl, as the REST API draft for TURN
// (draft-uberti-behave-turn-rest) and STUNner define them: the user name is "EXPIRY:USER" or "EXPIRY", EXPIRY in Unix
// seconds; the password is base64 of HMAC-SHA1 of the user name.
func Ephemeral(secret, user string, ttl time.Duration) Source {
	return func(now time.Time) (Credentials, error) {
		end := now.Add(ttl)
		name := strconv.FormatInt(end.Unix(), 10)
		if user != "" {
			name += ":" + user
		}
		mac := hmac.New(sha1.New, []byte(secret))
		mac.Write([]byte(name))
		return Credentials{User: name, Password: base64.StdEncoding.EncodeToString(mac.Sum(nil)), Expires: time.Unix(end.Unix(), 0)}, nil
	}
}

// expiryOf returns the expiry in a time-windowed user name: the first part between colons that is a Unix time in
// seconds.
func expiryOf(user string) time.Time {
	for part := range strings.SplitSeq(user, ":") {
		if n, err := strconv.ParseInt(part, 10, 64); err == nil && n > 1e9 && n < 1e11 {
			return time.Unix(n, 0)
		}
	}
	return time.Time{}
}

// maxCredentialsBytes limits the size of a credentials file.
const maxCredentialsBytes = 1 << 20

// File reads credentials from a file again for every session: the answer of a TURN REST service ({"username", "password", "ttl"}), a WebRTC
// configuration ({"iceServers": [{"username", "credential"}]}), or two lines, user and password.
func File(path string) Source {
	return func(time.Time) (Credentials, error) {
		data, err := readfile.Read(path, maxCredentialsBytes)
		if err != nil {
			return Credentials{}, fmt.Errorf("read credentials: %w", err)
		}
		written := time.Time{}
		if info, err := os.Stat(path); err == nil {
			written = info.ModTime()
		}
		c, err := parseCredentials(data, written)
		if err != nil {
			return Credentials{}, fmt.Errorf("%s: %w", path, err)
		}
		return c, nil
	}
}

type iceAnswer struct {
	Username   string   `json:"username"`
	Password   string   `json:"password"`
	Credential string   `json:"credential"`
	TTL        *float64 `json:"ttl"`
	ICEServers []struct {
		Username   string `json:"username"`
		Credential string `json:"credential"`
	} `json:"iceServers"`
}

// parseCredentials parses the formats of File. written is when the file was written; a ttl counts from then.
func parseCredentials(data []byte, written time.Time) (Credentials, error) {
	text := bytes.TrimSpace(data)
	var c Credentials
	if len(text) > 0 && text[0] == '{' {
		var a iceAnswer
		if err := json.Unmarshal(text, &a); err != nil {
			return c, fmt.Errorf("credentials: %w", err)
		}
		c.User, c.Password = a.Username, a.Password
		if c.Password == "" {
			c.Password = a.Credential
		}
		for _, s := range a.ICEServers {
			if c.User == "" {
				c.User, c.Password = s.Username, s.Credential
			}
		}
		c.Expires = expiryOf(c.User)
		if ttl := a.TTL; c.Expires.IsZero() && ttl != nil && *ttl > 0 && *ttl < 1e9 && !written.IsZero() {
			c.Expires = written.Add(time.Duration(*ttl * float64(time.Second)))
		}
	} else {
		user, password, _ := strings.Cut(string(text), "\n")
		c.User, c.Password = strings.TrimRight(user, "\r"), strings.TrimRight(password, "\r")
		c.Expires = expiryOf(c.User)
	}
	if c.User == "" || c.Password == "" || strings.ContainsAny(c.User+c.Password, "\n\x00") {
		return Credentials{}, errors.New(`credentials: write {"username": ..., "password": ...}, {"iceServers": [{"username": ..., "credential": ...}]}, or two lines: user and password`)
	}
	return c, c.check()
}

// check checks that a STUN message can carry the credentials (RFC 8489 section 14.3).
func (c Credentials) check() error {
	if len(c.User) > 512 || len(c.Password) > 1024 {
		return errors.New("credentials: at most 512 bytes of user name and 1024 of password")
	}
	return nil
}
