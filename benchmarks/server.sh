# shellcheck shell=bash
# A private server for a benchmark, to be sourced: data on an emulated cloud volume (3,000 IOPS, 0.5 ms, 125 MB/s) that is fast until
# `slow_down`, cache on the disk of the folder. Wants $dist, what `make build` has built, and $work, a new folder, which goes at the end.
# POOL and CACHE are its sizes. SERVER is mariadb-10.11, or mysql-9.7 of the root that `make demo SERVER=mysql-9.7` has made.
SERVER=${SERVER:-mariadb-10.11}
volume_pid='' server_pid=''
clean() {
    [ -z "$server_pid" ] || { kill "$server_pid" 2>/dev/null && wait "$server_pid" 2>/dev/null; } || true
    [ -z "$volume_pid" ] || { kill "$volume_pid" 2>/dev/null && wait "$volume_pid" 2>/dev/null; } || true
    rm -rf "$work"
}
trap clean EXIT
sql() { mariadb --no-defaults --socket="$work/socket" --user=root --batch --skip-column-names --execute="$1"; }
figure() { sql "SHOW GLOBAL STATUS LIKE 'Bpe_$1'" | cut -f 2; }
# reported NAME: a member of the report summary.
reported() { sql "SET SESSION bpe_report = 'summary'; SELECT JSON_VALUE(@@SESSION.bpe_report, '$.$1')"; }
start() {
    mkdir "$work/backing" "$work/volume" "$work/cache"
    chmod 700 "$work/cache"
    "$dist/bpe-lab" volume mount "$work/backing" "$work/volume" --unlimited --control "$work/control" >"$work/volume.log" 2>&1 &
    volume_pid=$!
    until mountpoint -q "$work/volume"; do sleep 0.1; done
    local common=(--no-defaults --user="$(id -un)" --datadir="$work/volume/data")
    local options=("${common[@]}" --socket="$work/socket" --pid-file="$work/pid" --skip-networking --plugin-dir="$dist"
        --loose-bpe-path="$work/cache" --loose-bpe-size="$CACHE" --innodb-buffer-pool-size="$POOL" --innodb-buffer-pool-chunk-size=1M
        --innodb-flush-method=O_DIRECT --innodb-flush-log-at-trx-commit=2 --innodb-io-capacity=1000 --max-connections=200)
    case $SERVER in
    mariadb-10.11)
        mariadb-install-db "${common[@]}" --auth-root-authentication-method=normal --skip-test-db >"$work/install.log" 2>&1
        mariadbd "${options[@]}" --plugin-load-add=bpe --innodb-log-file-size=512M >"$work/server.log" 2>&1 &
        ;;
    mysql-9.7)
        local root
        root=$("$(dirname "${BASH_SOURCE[0]}")/../scripts/cache-folder")/sid
        local program=("$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu:$root/usr/lib/mysql/private"
            "$root/usr/sbin/mysqld")
        local places=(--basedir="$root/usr" --lc-messages-dir="$root/usr/share/mysql" --character-sets-dir="$root/usr/share/mysql/charsets")
        "${program[@]}" "${common[@]}" "${places[@]}" --initialize-insecure >"$work/install.log" 2>&1
        "${program[@]}" "${options[@]}" "${places[@]}" --early-plugin-load=bpe=bpe.so --innodb-redo-log-capacity=1G --mysqlx=OFF --secure-file-priv= \
            >"$work/server.log" 2>&1 &
        ;;
    *)
        echo "mariadb-10.11 or mysql-9.7, not $SERVER" >&2
        exit 2
        ;;
    esac
    server_pid=$!
    until sql 'SELECT 1' >/dev/null 2>&1; do
        kill -0 "$server_pid" || { cat "$work/server.log"; exit 1; }
        sleep 0.2
    done
}
# Writes what is dirty, nearly all of it, for two minutes at most.
flush() {
    sql 'SET GLOBAL innodb_max_dirty_pages_pct=0'
    for _ in $(seq 120); do
        [ "$(sql "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'" | cut -f 2)" -gt 50 ] || break
        sleep 1
    done
    sql 'SET GLOBAL innodb_max_dirty_pages_pct=90'
}
# Bytes. MySQL does it in the background; a server that cannot leaves it as it is.
resize_pool() {
    sql "SET GLOBAL innodb_buffer_pool_size = $1" 2>/dev/null || return 0
    for _ in $(seq 300); do
        case $(sql "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_resize_status'" | cut -f 2) in '' | Completed*) break ;; esac
        sleep 0.2
    done
}
slow_down() { "$dist/bpe-lab" volume control "$work/control" profile default >/dev/null; }
stop() {
    sql SHUTDOWN
    wait "$server_pid" || true
    server_pid=''
}
