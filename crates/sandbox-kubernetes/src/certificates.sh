# Runs in a pod before its agent server, and writes the file of certificates that its programs trust. $0 is that file. The
# arguments are files that the template names, --, and where systems keep theirs. $AUTHORITY is one more certificate.

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

umask 022
# An agent may have put anything there.
rm -rf -- "$0"
true > "$0" || fail "its volume cannot be written: the operator has to check kubernetes.group, and whether the volume's driver applies fsGroup"
collect "$@" >> "$0" || fail "its image has no certificates of authorities: the operator has to install ca-certificates in it, or to set kubernetes.proxy_port to 0"
echo "$AUTHORITY" >> "$0"
