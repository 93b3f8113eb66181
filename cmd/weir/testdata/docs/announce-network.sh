# eth0 leads to a client, which also answers as the backend of weir.yaml.
ip netns add client
ip link add eth0 type veth peer name eth0 netns client
ip addr add 192.0.2.11/24 dev eth0
ip link set eth0 up
ip -n client addr add 192.0.2.1/24 dev eth0
ip -n client link set eth0 up
ip netns exec client socat UDP4-RECVFROM:5685,fork EXEC:cat &
