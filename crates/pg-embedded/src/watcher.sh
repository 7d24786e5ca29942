# Tidies up after a user of a cluster that was killed. Nobody but that user holds the other end of our standard input, so
# its end is the user's end. POSIX sh only: dash, ash, bash and macOS's all run it.
#
# $1 the cluster's folder   $2 the user's file   $3 "keep" or "remove" the folder   $4 the socket folder
# $5 the server's cluster_name
home=$1 user=$2 after=$3 sockets=$4 name=$5
data=$home/data
trap '' HUP INT QUIT TERM PIPE

read -r word
[ "$word" = done ] && exit 0

# Announce first, then look for others: whoever registers later sees the announcement and waits (src/users.rs).
announcement=$home/stopping.$$
: >"$announcement" || exit 1
rm -f "$user"
for other in "$home"/users/*; do
    [ -e "$other" ] || continue
    pid=${other##*/}
    if kill -0 "${pid%%-*}" 2>/dev/null; then
        rm -f "$announcement"
        exit 0
    fi
done

nap() { sleep 0.05 2>/dev/null || sleep 1; }

# Whether process $1 is an initdb or a postmaster of this folder. A zombie has no command line.
ours() {
    case $1 in '' | *[!0-9]*) return 1 ;; esac
    if [ -e /proc/self/cmdline ]; then
        tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -qF -e "-D $data"
    else
        ps -ww -o command= -p "$1" 2>/dev/null | grep -qF -e "-D $data"
    fi
}

first_line() { pid= && read -r pid <"$1" 2>/dev/null; }

stop() {
    ours "$1" || return 0
    [ "$after" = remove ] && kill -QUIT "$1" 2>/dev/null || kill -INT "$1" 2>/dev/null
    naps=0
    while ours "$1"; do
        nap
        naps=$((naps + 1))
        [ $naps -eq 200 ] && kill -QUIT "$1" 2>/dev/null
        [ $naps -eq 300 ] && kill -KILL "$1" 2>/dev/null
        [ $naps -ge 400 ] && break
    done
}

# A program that was just being started writes its process id there before anything else.
naps=0
while [ -e "$home/child" ] && [ ! -s "$home/child" ] && [ $naps -lt 20 ]; do
    nap
    naps=$((naps + 1))
done
first_line "$home/child"
stop "$pid"
first_line "$data/postmaster.pid"
stop "$pid"

# A server that stopped in order has removed that file. One that was killed may have left children, which notice it late
# if they are busy.
children() {
    if [ -e /proc/self/cmdline ]; then
        grep -l "^postgres: $name: " /proc/[0-9]*/cmdline 2>/dev/null | cut -d / -f 3
    else
        ps -axww -o pid= -o command= | sed -n "s/^ *\([0-9]*\) postgres: $name: .*/\1/p"
    fi
}
if [ -e "$data/postmaster.pid" ]; then
    for pid in $(children); do kill -QUIT "$pid" 2>/dev/null; done
    nap
    for pid in $(children); do kill -KILL "$pid" 2>/dev/null; done
fi

if [ "$after" = remove ]; then
    rm -rf "$sockets" "$home"
    # Children of the server may have been writing their last.
    [ -e "$home" ] && nap && rm -rf "$home"
fi
rm -f "$announcement"
exit 0
