# TURN servers at 192.0.2.1 (static users; UDP, TCP and, with a certificate for turn.example.org, TLS) and 192.0.2.2
# (shared secret), and the peers: programs that echo, each behind an address of its own.
for address in 192.0.2.1/32 192.0.2.2/32 10.0.0.5/32 10.0.0.53/32 2001:db8::7/128; do
	ip addr add $address dev lo
done
sed 's/$/ turn.example.org/' > hosts <<< 192.0.2.1
mount --bind hosts /etc/hosts
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=turn.example.org \
	-addext subjectAltName=DNS:turn.example.org -keyout key.pem -out cert.pem 2> /dev/null
chmod 600 key.pem
export SSL_CERT_FILE=$PWD/cert.pem
echo '{"username": "user1", "password": "passwd1"}' > ice.json
chmod 600 ice.json
cat > static.yaml <<'END'
auth: {users: [{name: user1, password: passwd1}]}
listeners:
- {name: udp, address: 192.0.2.1, routes: [datagrams]}
- {name: tcp, address: 192.0.2.1, protocol: tcp, routes: [datagrams, streams]}
- {name: tls, address: 192.0.2.1, protocol: tls, certificate: cert.pem, key: key.pem, routes: [datagrams]}
clusters:
- {name: datagrams, endpoints: ["10.0.0.5:5000", "10.0.0.53:7"]}
- {name: streams, protocol: tcp, endpoints: ["10.0.0.5:22"]}
END
cat > secret.yaml <<'END'
auth: {mode: ephemeral, secrets: [my-shared-secret]}
listeners:
- {name: udp, address: 192.0.2.2, relay: [192.0.2.2, "2001:db8::7"], routes: [datagrams]}
clusters:
- {name: datagrams, endpoints: ["[2001:db8::7]:5000"]}
END
chmod 600 static.yaml secret.yaml
for name in static secret; do
	weir turn gateway -c $name.yaml --admin unix:/run/$name.sock --metrics "" > $name.log 2>&1 &
	until curl -sf --unix-socket /run/$name.sock http://localhost/readyz; do sleep 0.1; done
done
socat UDP-LISTEN:5000,bind=10.0.0.5,fork EXEC:cat &
socat UDP-LISTEN:7,bind=10.0.0.53,fork EXEC:cat &
socat TCP-LISTEN:22,bind=10.0.0.5,fork EXEC:cat &
socat UDP6-LISTEN:5000,bind=[2001:db8::7],fork EXEC:cat &
