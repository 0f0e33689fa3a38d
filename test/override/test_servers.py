# SPDX-License-Identifier: MIT
"""postgres and nginx on Unix sockets: many processes, forks, reloads, and data that must agree."""
import concurrent.futures
import gzip
import http.client
import os
import shutil
import signal
import socket

from support import (Config, OverrideCase, ScenarioError, digest, program, unprivileged_user,
                     wait_until)

WORK = r"""
SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0; SET jit = on; SET jit_above_cost = 1000; SET work_mem = '4MB';
CREATE TABLE item AS SELECT i AS id, md5(i::text) AS name, (i * 7919) % 1009 AS kind,
    repeat(md5((i + 1)::text), i % 9) AS note FROM generate_series(1, 150000) i;
ALTER TABLE item ADD PRIMARY KEY (id);
CREATE INDEX item_name ON item (name); CREATE INDEX item_kind ON item USING hash (kind);
ANALYZE item;
SELECT count(*), sum(length(note)), max(name), count(DISTINCT kind) FROM item;
SELECT kind, count(*), md5(string_agg(name, ',' ORDER BY id)) FROM item WHERE kind < 12
    GROUP BY kind ORDER BY kind;
SELECT md5(string_agg(x::text, '')) FROM (SELECT a.kind, count(*), sum(b.id) FROM item a JOIN item b
    ON a.kind = b.kind WHERE a.id <= 20000 AND b.id <= 3000 GROUP BY a.kind ORDER BY 1) x;
SELECT md5(string_agg(r::text, '')) FROM (SELECT id, rank() OVER (PARTITION BY kind ORDER BY name)
    FROM item ORDER BY md5(note), id LIMIT 20000) r;
CREATE TABLE document AS SELECT id, jsonb_build_object('id', id, 'name', name, 'tags',
    jsonb_build_array(kind, kind % 7, left(note, 20))) AS body FROM item WHERE id % 5 = 0;
CREATE INDEX document_body ON document USING gin (body jsonb_path_ops);
SELECT count(*) FROM document WHERE body @> '{"tags": [3]}';
SELECT to_tsvector('english', 'The quick brown foxes jumped over lazy dogs') @@ 'fox & dog',
    xmlforest(1 AS a, 'b' AS c), regexp_replace(repeat('ab1', 2000), '[0-9]', 'x', 'g') ~ 'abx';
CREATE FUNCTION climb(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE t text := ''; BEGIN
    FOR i IN 1..n LOOP
        BEGIN
            t := t || i; IF i % 50 = 0 THEN RAISE EXCEPTION 'turn'; END IF;
        EXCEPTION WHEN OTHERS THEN t := md5(t);
        END;
    END LOOP; RETURN md5(t); END $$;
SELECT climb(5000);
UPDATE item SET note = upper(note) WHERE id % 3 = 0; DELETE FROM item WHERE id % 11 = 0;
VACUUM FULL item; REINDEX TABLE item;
CREATE EXTENSION amcheck;
SELECT bt_index_parent_check('item_name', true), bt_index_parent_check('item_pkey', true);
SELECT count(*), md5(string_agg(note, '' ORDER BY id)) FROM item;
"""


def children_of(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    if int(file.read().rsplit(")", 1)[1].split()[1]) == pid:
                        found.append(int(entry))
            except (OSError, IndexError):
                pass            # it ended meanwhile
    return found


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


class Postgres(OverrideCase):
    def test_initdb_pgbench_and_queries(self):
        postgres = os.path.realpath(program(self, "postgres"))
        folder = os.path.dirname(postgres)
        tools = {name: program(self, os.path.join(folder, name))
                 for name in ("initdb", "pgbench", "psql", "pg_dump")}
        user = unprivileged_user()
        clients, transactions = (12, 1500) if Config.full else (8, 250)

        def scenario(side):
            options = {"user": user, "env": {"PGHOST": side.directory, "PGUSER": "someone",
                                             "PGDATABASE": "postgres"}}
            side.run([tools["initdb"], "-D", "data", "-U", "someone", "-A", "trust", "-N", "-E",
                      "UTF8", "--locale=C.UTF-8"], timeout=200, **options)
            with open(side.path("log"), "wb") as log_file:
                server = side.start([postgres, "-D", "data", "-k", side.directory, "-c",
                                     "listen_addresses=", "-c", "fsync=off", "-c",
                                     "shared_buffers=64MB", "-c", "logging_collector=off"],
                                    stderr=log_file, **options)

            def sql(text):
                return side.run([tools["psql"], "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1"],
                                input_bytes=text.encode(), timeout=300, **options).text()
            wait_until(lambda: "accept connections" in tail(side.path("log"))
                       or server.poll() is not None, "postgres's socket", 60)
            results = [sql(WORK)]
            side.run([tools["pgbench"], "-i", "-q", "-s", "2"], timeout=200, **options)
            self.assert_mapped(side, server.pid, *children_of(server.pid))
            side.run([tools["pgbench"], "-c", clients, "-j", "2", "-t", transactions, "-C", "-M",
                      "prepared", "--random-seed=7", "-n"], timeout=400, **options)
            # Every transaction adds one delta in four tables: the sums agree in any order.
            results.append(sql("""SELECT (SELECT sum(abalance) FROM pgbench_accounts),
                (SELECT sum(tbalance) FROM pgbench_tellers),
                (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM
                pgbench_history), (SELECT count(*) FROM pgbench_history);"""))
            dump = side.run([tools["pg_dump"], "-T", "pgbench_history"], timeout=200,
                            **options).text()
            # Updated rows lie in the order of the updates; the set of lines is the same.
            lines = [line for line in dump.splitlines() if not line.startswith("\\")]
            results.append(digest("\n".join(sorted(lines))))
            results.append(side.stop(server, signal.SIGINT, 60))
            return results + [[line for line in tail(side.path("log")).splitlines()
                               if "PANIC" in line or "FATAL" in line or "terminated by" in line]]

        work, sums, _, status, complaints = self.both(scenario)
        *balances, count = sums.strip().split("|")
        self.assertEqual((len(set(balances)), int(count), status, complaints),
                         (1, clients * transactions, 0, []), (sums, work))
        self.assert_active("initdb", "psql", "pgbench", "pg_dump")
        self.assert_active("postgres", least=clients)


def tail(path):
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Nginx(OverrideCase):
    FILES = {f"f{i}.{'html' if i % 2 else 'bin'}": (digest(str(i)) * (1 + i * i * 7)).encode()
             for i in range(40)}

    def configuration(self, side):
        temporary = "".join(f"    {kind}_temp_path {side.path('tmp', kind)};\n" for kind in
                            ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user nobody nogroup;\n" if os.geteuid() == 0 else ""
        return f"""{user}worker_processes 2; daemon off; pid {side.path('pid')};
error_log {side.path('error.log')} notice;
events {{ worker_connections 256; }}
http {{
{temporary}    access_log {side.path('access.log')};
    types {{ text/html html; application/octet-stream bin; }}
    gzip on; gzip_types text/html application/octet-stream; gzip_min_length 100;
    proxy_buffer_size 4k; proxy_buffers 8 4k;
    server {{ listen unix:{side.path('back')}; root {side.path('www')};
        location /up {{ return 200 "$content_length"; }} }}
    server {{ listen unix:{side.path('front')};
        location / {{ proxy_pass http://unix:{side.path('back')}; }}
        location /direct/ {{ alias {side.path('www')}/; }} }}
}}
"""

    def ask(self, side, number, requests):
        """One client with a kept-alive connection; digests of what it got."""
        connection, results = UnixConnection(side.path("front")), []
        names = sorted(self.FILES)
        for i in range(requests):
            name = names[(i * 7 + number) % len(names)]
            path = ("/direct/" if i % 2 else "/") + name
            headers = {"Accept-Encoding": "gzip"} if i % 3 else {}
            if i % 5 == 4:
                headers = {"Range": f"bytes={i % 50}-{i % 50 + 40}"}
            if i % 11 == 10:
                connection.request("POST", "/up", body=b"x" * (i * 997 % 100_000))
            else:
                connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            body = response.read()
            if response.getheader("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if response.status == 200 and i % 11 != 10 and body != self.FILES[name]:
                raise ScenarioError(f"nginx sent another {name}")
            results.append((path, response.status, digest(body)))
            if i % 60 == 59 or response.getheader("Connection") == "close":
                connection.close()
        connection.close()
        return results

    def test_proxy_compression_and_reload_under_load(self):
        nginx = program(self, "nginx")
        requests = 2000 if Config.full else 300

        def scenario(side):
            shutil.rmtree(side.directory)
            os.makedirs(side.path("www"))
            os.makedirs(side.path("tmp"))
            for name, content in self.FILES.items():
                side.write(f"www/{name}", content)
            side.write("nginx.conf", self.configuration(side))
            server = side.start([nginx, "-p", side.directory, "-e", side.path("error.log"), "-c",
                                 side.path("nginx.conf")])
            wait_until(lambda: len(children_of(server.pid)) >= 2 or server.poll() is not None,
                       "nginx's workers")
            self.assert_mapped(side, server.pid, *children_of(server.pid))
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                tasks = [pool.submit(self.ask, side, i, requests) for i in range(6)]
                answers = [task.result() for task in tasks]
            before = set(children_of(server.pid))
            server.send_signal(signal.SIGHUP)       # new workers; the old ones drain and end
            wait_until(lambda: len(set(children_of(server.pid)) - before) >= 2
                       and not before & set(children_of(server.pid)), "nginx's reload")
            answers.append(self.ask(side, 9, 50))
            status = side.stop(server, signal.SIGQUIT)
            bad = [line for line in tail(side.path("error.log")).splitlines()
                   if "[alert]" in line or "[emerg]" in line or "exited on signal" in line]
            return answers, status, bad

        answers, status, bad = self.both(scenario)
        self.assertEqual((status, bad), (0, []))
        self.assertEqual({code for answer in answers for _, code, _ in answer}, {200, 206})
        self.assert_active("nginx", least=5)
