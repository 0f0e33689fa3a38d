# SPDX-License-Identifier: MIT
"""sqlite3: a database of a million rows, built, queried, checked and dumped."""
from support import OverrideCase, digest, program

ROWS = 1_000_000

BUILD = f"""
PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; PRAGMA cache_size=-65536;
CREATE TABLE account(id INTEGER PRIMARY KEY, owner TEXT, branch INT, balance INT, note BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
INSERT INTO account SELECT i, printf('owner-%05d-%s', (i * 7919) % 50021, hex(i * 2654435761)),
    (i * 31) % 997, (i * 7577) % 20011 - 10000, zeroblob(i % 24) FROM n;
CREATE INDEX account_owner ON account(owner);
CREATE INDEX account_branch ON account(branch, balance);
CREATE TABLE branch AS SELECT DISTINCT branch AS id, 'b' || branch AS name FROM account;
"""

QUERY = """
SELECT count(*), sum(balance), min(owner), max(owner), sum(length(note)) FROM account;
SELECT b.name, count(*), sum(a.balance), group_concat(DISTINCT a.balance % 13)
    FROM account a JOIN branch b ON b.id = a.branch GROUP BY b.id ORDER BY 2 DESC, 1 LIMIT 20;
SELECT substr(owner, 1, 11), count(*) c FROM account GROUP BY 1 ORDER BY c DESC, 1 LIMIT 5;
SELECT branch, balance, rank() OVER (PARTITION BY branch ORDER BY balance, id) FROM account
    WHERE branch IN (3, 500, 996) ORDER BY branch, 3 LIMIT 30;
SELECT json_group_array(json_object('id', id, 'owner', owner)) FROM account WHERE id % 50000 = 0;
SELECT owner FROM account ORDER BY substr(owner, 7) || id LIMIT 5 OFFSET 700000;
"""

CHANGE = """
BEGIN; UPDATE account SET owner = upper(owner) || balance WHERE id % 10 = 3;
DELETE FROM account WHERE id % 17 = 5; SAVEPOINT s; DELETE FROM account; ROLLBACK TO s; COMMIT;
CREATE VIRTUAL TABLE words USING fts5(text);
INSERT INTO words SELECT owner || ' branch ' || branch FROM account WHERE id <= 50000;
SELECT count(*) FROM words WHERE words MATCH 'branch AND 500';
VACUUM; ANALYZE;
SELECT count(*), sum(length(owner)), sum(balance) FROM account;
PRAGMA integrity_check; PRAGMA foreign_key_check;
"""


class Sqlite(OverrideCase):
    def test_a_million_rows_are_built_queried_and_intact(self):
        sqlite = program(self, "sqlite3")

        def scenario(side):
            def sql(text):
                return side.run([sqlite, "-bail", "bank.db"], input_bytes=text.encode(),
                                timeout=240).text()
            results = [sql(BUILD), sql(QUERY), sql(CHANGE)]
            dump = side.run([sqlite, "-bail", "bank.db", ".dump"], timeout=120).out
            with open(side.path("bank.db"), "rb") as file:
                return results, digest(dump), digest(file.read())

        results, _, _ = self.both(scenario)
        self.assertIn(f"\n{ROWS}|", "\n" + results[1])
        self.assertIn("\nok\n", results[2])
        self.assert_active("sqlite3", least=4)
