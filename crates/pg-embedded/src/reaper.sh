# Removes a temporary cluster whose process was killed. Only that process holds the other end of our standard input, so
# the end of the input is the end of the process. POSIX sh: dash, ash, bash and the sh of macOS run it.
#
# $1 the folder of the cluster   $2 the folder of its socket   $3 the server's cluster_name
trap '' HUP INT QUIT TERM PIPE
read -r word
[ "$word" = done ] && exit 0

nap() { sleep 0.05 2>/dev/null || sleep 1; }

# The processes of the cluster: initdb and the postmaster have its folder in their command line, the server's children
# its cluster_name.
running() {
    ps -axww -o pid= -o command= |
        awk -v data="$1/data" -v name="$2" 'index($0, "-D " data) || index($0, "postgres: " name ": ") { print $1 }'
}

for signal in QUIT QUIT KILL; do
    for pid in $(running "$1" "$3"); do kill "-$signal" "$pid" 2>/dev/null; done
    naps=0
    while [ -n "$(running "$1" "$3")" ] && [ $naps -lt 40 ]; do
        nap
        naps=$((naps + 1))
    done
done

# Backends that outlived the postmaster may still write.
rm -rf "$1" "$2"
[ -e "$1" ] && nap && rm -rf "$1"
exit 0
