#!/usr/bin/env python3
"""From the figures of bench/compare, bench/shared, bench/growth or bench/room to a table, and to JSON. Standard library only.

Ratios are medians of the ratios within a round: what changes on the machine from round to round meets both sides.
"""

import argparse
import json
import statistics
import sys

FIELDS = "round connections row requests us errors p50 p99 ticks effects rss server".split()
TICK_US = 10_000

# row: (what it is, the row of nginx with the same requests, effects per request, the aim in ratios to nginx)
ROWS = {
    "bare": ("the upstream alone", "nginx", 1, None),
    "nginx": ("nginx `proxy_pass`", "nginx", 1, None),
    "pass": ("gateway, no key", "nginx", 1, 0.9),
    "nginx-keyed": ("nginx `proxy_pass`, requests with keys", "nginx-keyed", 1, None),
    "memory": ("gateway, fresh keys, memory", "nginx-keyed", 1, 0.8),
    "embedded": ("gateway, fresh keys, embedded (power)", "nginx-keyed", 1, 0.5),
    "replay": ("gateway, replays, memory", "nginx", 0, 1.5),
    "replay-embedded": ("gateway, replays, embedded", "nginx", 0, 1.5),
}

# The same for bench/shared; the ratios are to the service that people write by hand, on the same Redis.
SHARED = {
    "peer": ("SET NX by hand, fresh keys", "peer", 1, None),
    "redis": ("gateway on Redis, fresh keys", "peer", 1, 1.0),
    "postgres": ("gateway on PostgreSQL, fresh keys", "peer", 1, None),
    "mariadb": ("gateway on MariaDB, fresh keys", "peer", 1, None),
    "bare-copies": ("a server that answers at once and looks nothing up, copies", "peer-copies", 1, None),
    "peer-copies": ("SET NX by hand, copies", "peer-copies", 0, None),
    "redis-copies": ("gateway on Redis, copies", "peer-copies", 0, 2.0),
    "postgres-copies": ("gateway on PostgreSQL, copies", "peer-copies", 0, None),
    "mariadb-copies": ("gateway on MariaDB, copies", "peer-copies", 0, None),
}


def read(path):
    with open(path, encoding="ascii") as lines:
        for line in lines:
            runs = dict(zip(FIELDS, line.rstrip("\n").split("\t")))
            yield {k: v if k == "row" else int(v) for k, v in runs.items()}


def cpu(run):
    return run["ticks"] * TICK_US / max(run["requests"], 1)


def rate(run):
    return run["requests"] * 1e6 / run["us"]


def median_ratio(mine, theirs, value=rate):
    """The median, lowest and highest of the rounds' ratios; None where a side is missing."""
    by_round = {r["round"]: value(r) for r in theirs}
    all_of_them = sorted(value(r) / by_round[r["round"]] for r in mine if by_round.get(r["round"]))
    if not all_of_them:
        return None
    return [round(f(all_of_them), 3) for f in (statistics.median, min, max)]


def summary(runs, rows=ROWS):
    """One entry for each number of connections and row, in the order of the rows."""
    groups = {}
    for run in runs:
        groups.setdefault((run["connections"], run["row"]), []).append(run)
    result = []
    for connections in sorted({c for c, _ in groups}):
        for row, (words, reference, effects, aim) in rows.items():
            mine = groups.get((connections, row))
            if not mine:
                continue
            middle = lambda value: statistics.median(value(r) for r in mine)
            result.append({
                "connections": connections, "row": row, "what": words, "rounds": len(mine),
                "requests_per_s": round(middle(rate)), "requests": min(r["requests"] for r in mine),
                "to_nginx": median_ratio(mine, groups.get((connections, reference), [])),
                "to_bare": median_ratio(mine, groups.get((connections, "bare"), [])),
                "aim": aim if connections > 1 else None,
                "p50_us": round(middle(lambda r: r["p50"])), "p99_us": round(middle(lambda r: r["p99"])),
                "cpu_us_per_request": round(middle(cpu), 1),
                "cpu_to_nginx": median_ratio(mine, groups.get((connections, reference), []), lambda r: 1 / max(cpu(r), 0.01)),
                "effects_per_request": round(middle(lambda r: r["effects"] / max(r["requests"], 1)), 3),
                "bytes_per_request": round(middle(lambda r: r["rss"] * 1024 / max(r["requests"], 1))),
                "server_cpu_us_per_request": round(middle(lambda r: r.get("server", 0) * TICK_US / max(r["requests"], 1)), 1),
                "errors": sum(r["errors"] for r in mine),
                "expected_effects": effects,
            })
    return result


def wrong(rows):
    """Rows that did not measure what they are called: a comparison with them would be worth nothing."""
    for r in rows:
        where = f"{r['row']} at {r['connections']}"
        # By hand, a copy that comes while the first of its key still runs is told so by a 409.
        if r["errors"] and r["row"] != "peer-copies":
            yield f"{where}: {r['errors']} requests failed"
        # Those under way when the clock stops took effect and were not counted; the first of each key is no replay.
        if abs(r["effects_per_request"] - r["expected_effects"]) > 0.05 + r["connections"] / max(r["requests"], 1):
            yield f"{where}: {r['effects_per_request']} effects per request instead of {r['expected_effects']}"


def of(ratio):
    return "–" if ratio is None else f"{ratio[0]:.2f} ({ratio[1]:.2f}–{ratio[2]:.2f})"


def markdown(rows):
    for connections in sorted({r["connections"] for r in rows}):
        yield f"### {connections} connection{'s' if connections > 1 else ''}"
        yield ""
        yield "| | requests/s | of nginx | aim | of the bare upstream | p50 µs | p99 µs | CPU µs/request | nginx's CPU to it | memory B/request |"
        yield "|---|---|---|---|---|---|---|---|---|---|"
        for r in rows:
            if r["connections"] == connections:
                aim = f"≥ {r['aim']}" if r["aim"] else ""
                yield (f"| {r['what']} | {r['requests_per_s']} | {of(r['to_nginx'])} | {aim} | {of(r['to_bare'])} | "
                       f"{r['p50_us']} | {r['p99_us']} | {r['cpu_us_per_request']} | "
                       f"{of(r['cpu_to_nginx'])} | {r['bytes_per_request']} |")
        yield ""


def shared(rows):
    """The table of bench/shared. The last figure but one of a run is how many commands Redis was asked."""
    yield ("| | requests/s | of SET NX by hand | aim | p50 µs | p99 µs | CPU µs/request | its CPU to it | "
           "the server's CPU µs/request | commands to Redis/request |")
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for r in rows:
        aim = f"≥ {r['aim']}" if r["aim"] else ""
        # bench/shared counts commands where bench/compare has kilobytes.
        asked = f"{r['bytes_per_request'] / 1024:.2f}" if r["row"].startswith(("peer", "redis")) else "–"
        yield (f"| {r['what']} | {r['requests_per_s']} | {of(r['to_nginx'])} | {aim} | {r['p50_us']} | {r['p99_us']} | "
               f"{r['cpu_us_per_request']} | {of(r['cpu_to_nginx'])} | {r['server_cpu_us_per_request']} | {asked} |")


NAMES = {"peer": "SET NX by hand", "redis": "gateway on Redis", "postgres": "gateway on PostgreSQL", "mariadb": "gateway on MariaDB"}
# Each of the first three figures of bench/shared's count is of so many requests.
COUNTED = 200


def trips(path):
    """What the servers were asked, counted by them."""
    yield ""
    yield "Round trips to the store for each request, counted by the server:"
    yield ""
    yield "| | fresh key | copy at another gateway | the same copy again | a storm of 100 copies, the worst of five, in all |"
    yield "|---|---|---|---|---|"
    with open(path, encoding="ascii") as lines:
        for line in lines:
            name, fresh, copy, again, storm = line.split()
            each = [f"{int(n) / COUNTED:.2f}" for n in (fresh, copy, again)]
            yield f"| {NAMES[name]} | {' | '.join(each)} | {storm} |"


GROWN = "claim complete duplicate page filtered purge".split()


def growth(path):
    """The table of bench/growth: medians of one call at a time."""
    yield ("| | records | claim µs | complete µs | duplicate µs | page of 100 µs | page that nothing passes µs | purge µs | "
           "removed by it | bytes/record |")
    yield "|---|---|---|---|---|---|---|---|---|---|"
    with open(path, encoding="ascii") as lines:
        for line in lines:
            store, size, *figures, seen, gone, taken = line.rstrip("\n").split("\t")
            yield f"| {store} | {int(size):,} | {' | '.join(f'{int(us):,}' for us in figures)} | {gone} | {int(taken):,} |"


def room(path):
    """The table of bench/room: what Redis adds to a record's bytes."""
    yield "| value | its key's name | records | MEMORY USAGE of one | memory used, per record | more than value and name |"
    yield "|---|---|---|---|---|---|"
    with open(path, encoding="ascii") as lines:
        for line in lines:
            value, name, records, usage, used = map(int, line.split())
            yield f"| {value:,} | {name} | {records:,} | {usage:,} | {used:,} | {used - value - name:,} |"


def replace_section(path, text, name):
    """Puts the text between this script's two marks in a file; the rest of the file is people's."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    with open(path, encoding="utf-8") as file:
        before, _, rest = file.read().partition(begin)
    _, _, after = rest.partition(end)
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + begin + text + end + after)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("raw")
    arguments.add_argument("about")
    arguments.add_argument("--json")
    arguments.add_argument("--markdown")
    arguments.add_argument("--table", choices=["compare", "growth", "room", "shared"], default="compare")
    arguments.add_argument("--trips")
    options = arguments.parse_args()

    with open(options.about, encoding="utf-8") as lines:
        about = dict(line.rstrip("\n").split(" ", 1) for line in lines)
    is_shared = options.table == "shared"
    others = {"growth": growth, "room": room}
    rows = [] if options.table in others else summary(read(options.raw), SHARED if is_shared else ROWS)
    text = "\n".join([
        f"- Machine: {about['machine']}; disk: {about['disk']}, 4 KiB written and synced in {about['sync_us']} µs (median)",
        f"- Load before the run (1, 5, 15 min): {about['load']}",
        f"- {about['semel']}; {about['versions']}",
        f"- `{about['command']}`",
        "",
        *(others[options.table](options.raw) if options.table in others else shared(rows) if is_shared else markdown(rows)),
        *(trips(options.trips) if options.trips else []),
    ]) + "\n"
    sys.stdout.write(text)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"about": about, "rows": rows}, file, indent=1, ensure_ascii=False)
            file.write("\n")
    if options.markdown:
        replace_section(options.markdown, text, options.table)
    problems = list(wrong(rows))
    for problem in problems:
        print(f"not a fair measurement: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
