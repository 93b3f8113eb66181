# A CoAP server with these options, which serves when the next command begins.
weir coap server "$@" > server.log 2>&1 &
until grep -q uri=coaps server.log; do sleep 0.1; done
