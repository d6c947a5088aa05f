# shellcheck shell=bash
# What the scripts of bench/ share: a folder and processes that end with them, and what /proc tells of a process.
# Sourced; expects `root`, and `semel` to hold the binary before a gateway is started.

dir=$(mktemp -d "${TMPDIR:-/tmp}/semel-bench.XXXXXX")
pids=()
finish() {
  local pid
  for pid in "${pids[@]:-}"; do
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
  done
  for pid in "${pids[@]:-}"; do
    [ -z "$pid" ] || wait "$pid" 2>/dev/null || true
  done
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

die() {
  echo "$0: $*" >&2
  local log
  for log in "$dir"/*.log; do
    [ -s "$log" ] && { echo "--- ${log##*/}" >&2; tail -5 "$log" >&2; }
  done
  exit 3
}

# need COMMAND PACKAGE: installs the Debian package where the command is missing.
need() {
  command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] && return
  command -v apt-get >/dev/null || die "$1 is missing: install it (Debian: $2)"
  local sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  echo "installing $2" >&2
  { $sudo apt-get install -y -qq --no-install-recommends "$2" ||
    { $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends "$2"; }; } >"$dir/apt.log" 2>&1 ||
    die "$2 could not be installed"
}
PATH=$PATH:/usr/sbin

# The path of the release binary, built now.
build_semel() {
  (cd "${root:?}" && cargo build --release --quiet -p semel-cli >&2) || die "the release binary does not build"
  echo "${CARGO_TARGET_DIR:-$root/target}/release/semel"
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for PORT PID: until somebody listens there, at most 30 s.
wait_for() {
  for _ in $(seq 600); do
    kill -0 "$2" 2>/dev/null || die "a process ended before it listened on port $1"
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
    sleep 0.05
  done
  die "nobody listens on port $1"
}

nginx_head() {
  [ "$(id -u)" = 0 ] && echo "user root;"
  cat <<TEXT
daemon off; worker_processes $2; worker_rlimit_nofile 4096;
pid $dir/$1.pid; error_log $dir/$1.log;
events { worker_connections 2048; }
http {
  access_log off; default_type application/json; tcp_nodelay on; sendfile on;
  client_body_temp_path $dir/$1-body; proxy_temp_path $dir/$1-proxy; fastcgi_temp_path $dir/$1-fastcgi;
  uwsgi_temp_path $dir/$1-uwsgi; scgi_temp_path $dir/$1-scgi;
  keepalive_requests 1000000000; keepalive_timeout 600s;
TEXT
}

# A service that answers at once, and counts.
start_upstream() {
  upstream_port=$(free_port) status_port=$(free_port)
  {
    nginx_head upstream 1
    cat <<TEXT
  server { listen 127.0.0.1:$upstream_port backlog=1024;
    location / { return 200 '{"order":"o-4711","status":"accepted","total":"19.90"}'; } }
  server { listen 127.0.0.1:$status_port; location / { stub_status; } }
}
TEXT
  } >"$dir/upstream.conf"
  nginx -e "$dir/nginx-start.log" -p "$dir" -c "$dir/upstream.conf" 2>>"$dir/upstream.log" &
  upstream_pid=$!
  pids+=("$upstream_pid")
  wait_for "$upstream_port" "$upstream_pid"
}

# How many requests the upstream has answered, this question included.
upstream_requests() {
  exec 3<>"/dev/tcp/127.0.0.1/$status_port"
  printf 'GET / HTTP/1.0\r\n\r\n' >&3
  awk 'asked { print $3; exit } /accepts handled requests/ { asked = 1 }' <&3
  exec 3>&-
}

# The reference: a reverse proxy that keeps its connections.
start_nginx() {
  nginx_port=$(free_port)
  {
    nginx_head nginx 2
    cat <<TEXT
  upstream orders { server 127.0.0.1:$upstream_port; keepalive 128; keepalive_requests 1000000000; }
  server { listen 127.0.0.1:$nginx_port reuseport backlog=1024;
    location / { proxy_pass http://orders; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host \$host; proxy_set_header X-Forwarded-For \$proxy_add_x_forwarded_for; } }
}
TEXT
  } >"$dir/nginx.conf"
  nginx -e "$dir/nginx-start.log" -p "$dir" -c "$dir/nginx.conf" 2>>"$dir/nginx.log" &
  nginx_pid=$!
  pids+=("$nginx_pid")
  wait_for "$nginx_port" "$nginx_pid"
}

# start_gateway NAME [STORE]: sets NAME_port and NAME_pid. The store is called as the gateway, where none is named.
start_gateway() {
  local port pid store=(--store "${2:-$1}")
  port=$(free_port)
  if [ "$1" = embedded ]; then
    rm -rf "${dir:?}/data"
    store+=(--data-dir "$dir/data")
  fi
  # From its own folder: no file of the caller's is taken for a configuration.
  (cd "$dir" && exec "${semel:?}" gateway --upstream "http://127.0.0.1:$upstream_port" --listen "127.0.0.1:$port" \
    --admin "127.0.0.1:$(free_port)" "${store[@]}" >"$dir/gateway-$1.log" 2>&1) &
  pid=$!
  pids+=("$pid")
  wait_for "$port" "$pid"
  printf -v "$1_port" %s "$port"
  printf -v "$1_pid" %s "$pid"
}

stop_gateway() {
  local pid kept=()
  kill "$1"
  wait "$1" || true
  # The number may soon be another process's.
  for pid in "${pids[@]}"; do [ "$pid" = "$1" ] || kept+=("$pid"); done
  pids=("${kept[@]}")
}

# until_it_answers WHO COMMAND…: a server listens before it answers; at most 30 s.
until_it_answers() {
  for _ in $(seq 300); do
    "${@:2}" >"$dir/$1-answers.log" 2>&1 && return
    sleep 0.1
  done
  die "$1 does not answer"
}

# A Redis that syncs its log each second, as people run it.
start_redis() {
  redis_server_port=$(free_port)
  mkdir "$dir/redis"
  redis-server --bind 127.0.0.1 --port "$redis_server_port" --dir "$dir/redis" --save "" --appendonly yes --appendfsync everysec \
    --maxmemory-policy noeviction >"$dir/redis.log" 2>&1 &
  redis_server_pid=$!
  pids+=("$redis_server_pid")
  wait_for "$redis_server_port" "$redis_server_pid"
  # shellcheck disable=SC2034 # Whoever sources this uses it.
  redis_url="redis://127.0.0.1:$redis_server_port/0"
}

# redis_commands WHO: round trips that the Redis was asked for so far. It counts commands inside scripts as well. Each of Semel's has
# one SET under these loads: a claim is one, and a completion's script does one; the peer's one script reads and writes once, as its
# commands beside it do.
redis_commands() {
  redis-cli -p "$redis_server_port" info commandstats | awk -F'[:=,]' -v who="$1" '
    /^cmdstat_evalsha:/ { scripts = $3 }
    /^cmdstat_(set|get):/ { others += $3 }
    /^cmdstat_set:/ { sets = $3 }
    END { print (who == "peer" ? others - scripts : sets) + 0 }'
}

# A PostgreSQL with its own settings of durability. It refuses to run as root.
start_postgres() {
  local bin=/usr/lib/postgresql/15/bin run=()
  [ -d "$bin" ] || bin=$(dirname "$(find /usr/lib/postgresql -name initdb | sort | tail -1)")
  postgres_server_port=$(free_port)
  mkdir "$dir/postgres"
  if [ "$(id -u)" = 0 ]; then
    chown postgres "$dir/postgres"
    chmod 711 "$dir"
    run=(setpriv --reuid=postgres --regid=postgres --clear-groups)
  fi
  "${run[@]}" "$bin/initdb" -D "$dir/postgres/data" -U semel --auth=trust >"$dir/initdb.log" 2>&1 || die "initdb failed"
  "${run[@]}" "$bin/postgres" -D "$dir/postgres/data" -p "$postgres_server_port" -h 127.0.0.1 -k "$dir/postgres" \
    -c max_connections=200 -c shared_buffers=256MB -c max_wal_size=4GB >"$dir/postgres.log" 2>&1 &
  postgres_server_pid=$!
  pids+=("$postgres_server_pid")
  wait_for "$postgres_server_port" "$postgres_server_pid"
  until_it_answers postgres ask_postgres -c 'SELECT 1'
  postgres_url="postgres://semel@127.0.0.1:$postgres_server_port/postgres"
  "${semel:?}" migrate "$postgres_url" >"$dir/migrate-postgres.log" 2>&1 || die "the tables could not be made"
}

# A MariaDB with its own settings of durability.
start_mariadb() {
  local as=()
  mariadb_server_port=$(free_port)
  mkdir "$dir/mariadb"
  [ "$(id -u)" = 0 ] && as=(--user=root)
  mariadb-install-db --no-defaults --datadir="$dir/mariadb" --auth-root-authentication-method=normal "${as[@]}" \
    >"$dir/mariadb-install.log" 2>&1 || die "mariadb-install-db failed"
  mariadbd --no-defaults --datadir="$dir/mariadb" --socket="$dir/mariadb.sock" --bind-address=127.0.0.1 \
    --port="$mariadb_server_port" --innodb-buffer-pool-size="${mariadb_pool:-256M}" --innodb-log-file-size=512M "${as[@]}" >"$dir/mariadb.log" 2>&1 &
  mariadb_server_pid=$!
  pids+=("$mariadb_server_pid")
  wait_for "$mariadb_server_port" "$mariadb_server_pid"
  until_it_answers mariadb mariadb --no-defaults --socket="$dir/mariadb.sock" -u root -e 'SELECT 1'
  mariadb --no-defaults --socket="$dir/mariadb.sock" -u root -e 'CREATE DATABASE semel; CREATE USER semel@127.0.0.1; GRANT ALL ON semel.* TO semel@127.0.0.1' ||
    die "MariaDB refused the database"
  mariadb_url="mysql://semel@127.0.0.1:$mariadb_server_port/semel"
  "${semel:?}" migrate "$mariadb_url" >"$dir/migrate-mariadb.log" 2>&1 || die "the tables could not be made"
}

# psql and its like on the servers of this run, as their owners.
ask_postgres() {
  psql -h 127.0.0.1 -p "$postgres_server_port" -U semel -d postgres -qXAt -v ON_ERROR_STOP=1 "$@"
}

ask_mariadb() {
  mariadb --no-defaults --socket="$dir/mariadb.sock" -u root -N semel "$@"
}

# PostgreSQL writes down what it is asked: for counting, not for measuring.
postgres_tells() {
  ask_postgres -c "ALTER SYSTEM SET log_statement = '$1'" -c "SELECT pg_reload_conf()" >/dev/null
  sleep 0.3
}

# round_trips WHO: what its server was asked so far. PostgreSQL has to tell, and its gateways' look at whether it works, now and
# then, is left out; MariaDB counts that, and this question.
round_trips() {
  case "$1" in
    postgres) grep 'LOG:  \(execute\|statement\)' "$dir/postgres.log" | grep -vc ' = 15::bigint' || true ;;
    mariadb) ask_mariadb -e "SHOW GLOBAL STATUS LIKE 'Questions'" | awk '{ print $2 }' ;;
    *) redis_commands "$1" ;;
  esac
}

# cpu_ticks PID: user and system time of a process and its children so far, in ticks of 10 ms.
cpu_ticks() {
  local pid sum=0 rest
  for pid in "$1" $(cat "/proc/$1/task/$1/children"); do
    rest=$(<"/proc/$pid/stat")
    # shellcheck disable=SC2086 # The fields after the command's name, which may hold spaces itself.
    set -- ${rest##*) }
    sum=$((sum + ${12} + ${13}))
  done
  echo "$sum"
}

# rss_kb PID: resident memory of a process and its children.
rss_kb() {
  local pid sum=0
  for pid in "$1" $(cat "/proc/$1/task/$1/children"); do
    sum=$((sum + $(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status")))
  done
  echo "$sum"
}

# Microseconds for appending 4 KiB and syncing it, where the embedded store writes; the median of 100.
sync_cost() {
  python3 - "$dir/sync" <<'TEXT'
import os, statistics, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
took = []
for _ in range(100):
    start = time.perf_counter()
    os.write(fd, b"x" * 4096)
    os.fdatasync(fd)
    took.append(time.perf_counter() - start)
print(round(statistics.median(took) * 1e6))
TEXT
}
