# Runs in a pod before its agent server, and writes the file of certificates that its programs trust. $0 is that file. The
# arguments are files that the template names, --, and where systems keep theirs. $AUTHORITY is one more certificate. $PROXY is
# the URL of the forward proxy, if the pod uses it, and must answer within $PROXY_TIMEOUT seconds.

fail() {
  echo "$1" >&2
  exit 1
}

collect() {
  while [ "$1" != -- ]; do
    cat "$1" && echo
    shift
  done
  shift
  [ $# -eq 0 ] && return
  for file in "$@"; do
    if [ -s "$file" ]; then
      cat "$file" && echo
      return
    fi
  done
  return 1
}

# A network policy may let a new pod through a moment later.
reaches_proxy() {
  python3 -c '
import socket, sys, time, urllib.parse

proxy = urllib.parse.urlsplit(sys.argv[1])
end = time.monotonic() + float(sys.argv[2])
while True:
    try:
        socket.create_connection((proxy.hostname, proxy.port), 5).close()
        sys.exit()
    except OSError:
        if time.monotonic() > end:
            sys.exit(1)
        time.sleep(0.2)
' "$PROXY" "$PROXY_TIMEOUT"
}

umask 022
# An agent may have put anything there.
rm -rf -- "$0"
true > "$0" || fail "its volume cannot be written: the operator has to check kubernetes.group, and whether the volume's driver applies fsGroup"
collect "$@" >> "$0" || fail "its image has no certificates of authorities: the operator has to install ca-certificates in it, or to set kubernetes.proxy_port to 0"
echo "$AUTHORITY" >> "$0"

# Agents need python3. Without it, nothing is known.
if [ -n "$PROXY" ] && command -v python3 > /dev/null; then
  reaches_proxy || fail "it does not reach the forward proxy of the service at $PROXY: the operator has to let it by the network policy of its namespace, or to set kubernetes.proxy_port to 0"
fi
