# Runs in a pod before its agent server, and writes the files of certificates that its programs trust. $0 is one of them, and
# Java's is beside it. The arguments are files that the template names, --, and where systems keep theirs. $AUTHORITY is one more certificate. $PROXY is
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

# As java_trust_store of the crate sandbox-provider.
write_for_java() {
  python3 -c '
import base64, hashlib, re, struct, sys

pem = open(sys.argv[1]).read()
found = re.findall("-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", pem, re.S)
store = struct.pack(">III", 0xFEEDFEED, 2, len(found))
for number, certificate in enumerate(found, 1):
    name, der = str(number).encode(), base64.b64decode(certificate)
    store += struct.pack(">IH", 2, len(name)) + name + struct.pack(">QH", 0, 5) + b"X.509"
    store += struct.pack(">I", len(der)) + der
digest = hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + store)
open(sys.argv[2], "wb").write(store + digest.digest())
' "$0" "${0%.pem}.jks"
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
rm -rf -- "$0" "${0%.pem}.jks"
true > "$0" || fail "its volume cannot be written: the operator has to check kubernetes.group, and whether the volume's driver applies fsGroup"
collect "$@" >> "$0" || fail "its image has no certificates of authorities: the operator has to install ca-certificates in it, or to set kubernetes.proxy_port to 0"
echo "$AUTHORITY" >> "$0"

# Agents need python3. Without it, nothing is known, and Java trusts nothing.
command -v python3 > /dev/null || exit 0
write_for_java || fail "the certificates of its image cannot be read"
if [ -n "$PROXY" ]; then
  reaches_proxy || fail "it does not reach the forward proxy of the service at $PROXY: the operator has to let it by the network policy of its namespace, or to set kubernetes.proxy_port to 0"
fi
