# eth0 leads to a client that keeps connecting to the VIP of weir.yaml, eth1 to a backend.
for n in 0 1; do
	ip netns add host$n
	ip link add eth$n type veth peer name eth0 netns host$n
	ip addr add 10.8.$n.1/24 dev eth$n
	ip link set eth$n up
	ip -n host$n addr add 10.8.$n.2/24 dev eth0
	ip -n host$n link set eth0 up
	ip -n host$n route add default via 10.8.$n.1
done
ip netns exec host1 weir tcp server --listen :80 > server.log 2>&1 &
until [ -s server.log ]; do sleep 0.1; done
weir init weir.yaml --vip 192.0.2.1:80 --backend 10.8.1.2:80
while sleep 0.1; do ip netns exec host0 curl -s -m 1 http://192.0.2.1; done > /dev/null 2>&1 &
