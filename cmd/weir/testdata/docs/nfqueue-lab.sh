# The lab nfqueue with a balancer and a client that sends datagrams to the VIP, each from a port of its own.
mkdir -p /run/weir
weir lab up nfqueue
weir lab config nfqueue > nfqueue.yaml
weir lab exec nfqueue balancer -- iptables -t mangle -A PREROUTING -i left -d 10.96.0.1 -j NFQUEUE --queue-num 0
weir lab exec nfqueue balancer -- weir lb run -c nfqueue.yaml --datapath nfqueue --admin unix:/run/weir/lb.sock > lb.log 2>&1 &
until weir lb status > /dev/null 2>&1; do sleep 0.1; done
weir lab exec nfqueue client -- bash -c 'while sleep 0.1; do echo datagram > /dev/udp/10.96.0.1/80; done' &
