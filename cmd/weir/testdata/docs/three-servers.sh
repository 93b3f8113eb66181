# Three servers behind 192.0.2.1 port 10000, each of which gets every third connection.
for n in 1 2 3; do
	ip addr add 10.9.0.$n/32 dev lo
	weir tcp server --listen 10.9.0.$n:10000 --id server$n > server$n.log 2>&1 &
	iptables -t nat -A OUTPUT -d 192.0.2.1 -p tcp --dport 10000 -m statistic --mode nth --every $((4 - n)) --packet 0 -j DNAT --to 10.9.0.$n
	until [ -s server$n.log ]; do sleep 0.1; done
done
